"""LiteLLM as a client of any OpenAI-compatible server."""

import json
from typing import Any

import litellm
from pydantic import BaseModel, Field
from steps import HELLO, INVENT, TEXTS, WEATHER, report, told

WAY = told()
SERVER = {"api_base": WAY.base_url, "api_key": WAY.key, "max_retries": 0}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


def ask(messages: Any, model: str = WAY.model, **fields: Any) -> Any:
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    wanted = {"temperature": 0, "max_tokens": 100} | fields
    return litellm.completion(model=f"openai/{model}", messages=messages, **SERVER, **wanted)


def chat() -> Any:
    return {"text": ask(HELLO).choices[0].message.content}


def stream() -> Any:
    pieces = [chunk.choices[0].delta.content for chunk in ask(HELLO, stream=True)]
    return {"pieces": [piece for piece in pieces if piece]}


def calls_of(answer: Any) -> list[Any]:
    calls = answer.choices[0].message.tool_calls
    return [[call.function.name, json.loads(call.function.arguments)] for call in calls]


def tools() -> Any:
    wanted = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": WAY.parallel}
    question = {"role": "user", "content": WEATHER}
    whole = ask([question], **wanted)
    message = whole.choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in message.tool_calls]
    after = ask([question, message.model_dump(), *results], tools=[TOOL], tool_choice="none")
    streamed = litellm.stream_chunk_builder(list(ask([question], stream=True, **wanted)))
    return {
        "calls": calls_of(whole),
        "streamed_calls": calls_of(streamed),
        "after": after.choices[0].message.content,
    }


def structured() -> Any:
    return json.loads(ask(INVENT, response_format=Person).choices[0].message.content)


def embeddings() -> Any:
    answer = litellm.embedding(model=f"openai/{WAY.embedding_model}", input=TEXTS, **SERVER)
    return [item["embedding"] for item in answer.data]


def responses() -> Any:
    wanted = {"model": f"openai/{WAY.model}", "input": HELLO, "temperature": 0, "max_output_tokens": 100}
    server = {"api_base": WAY.base_url, "api_key": WAY.key}
    whole = litellm.responses(**wanted, **server)
    events = list(litellm.responses(**wanted, **server, stream=True))
    return {
        "text": "".join(part.text for item in whole.output if item.type == "message" for part in item.content),
        "pieces": [event.delta for event in events if event.type == "response.output_text.delta"],
    }


def error() -> Any:
    try:
        ask(HELLO, model=WAY.faulty_model)
    except litellm.exceptions.APIError as refused:
        return {"status": refused.status_code, "said": str(refused)}
    except (litellm.exceptions.NotFoundError, litellm.exceptions.BadRequestError) as refused:
        return {"status": refused.status_code, "said": str(refused)}


report(
    chat=chat,
    stream=stream,
    tools=tools,
    structured=structured,
    embeddings=embeddings,
    responses=responses,
    error=error,
)
