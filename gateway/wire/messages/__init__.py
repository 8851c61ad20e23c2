"""Anthropic's Messages API, both ways: its clients in front of any model, its models behind OpenAI's chat format.

In front: request (turns, tools) -> Inference; a chat's answer -> message, its chunks -> events; dialect has the voices.
Behind: chat_request (chat_turns, tools) -> the provider; its message -> completion, its events -> chunks.
Both: passing reads what goes through untouched; terms and errors hold the words that differ.

Reference: https://platform.claude.com/docs/en/api/messages
"""
