"""OpenAI's Responses API over the chat format: requests in, response objects and their events out.

Source: https://platform.openai.com/docs/api-reference/responses. Knows no HTTP, no tenants and no store.
"""
