"""What a good provider does, under the model name "good": text, parallel calls, JSON of a schema, vectors.

Answers depend on the request alone, whole or streamed in small pieces, and a request that no provider would take is
refused, so that a client, or a gateway, that sends one is found out.
"""

import base64
import json
import struct
from collections.abc import Iterator
from typing import Any

import jsonschema

from tests.faults.misbehaving import Wire
from tests.faults.misbehaviours import SCRIPTS, USAGE, chunk, completion, error

HELLO = "Hello from the harbour: 日本語 🙂 naïve."
THOUGHT = "They greet me, so I greet them."
CITIES = ("Paris", "Tokyo", "Lima")
AFTER_CALLS = "It is sunny in all of them."
PERSON = {"name": "Ada", "age": 36}


async def good(wire: Wire) -> None:
    request = wire.request.json
    if wire.request.path.endswith("/embeddings"):
        await wire.json(_embeddings(request))
    elif (fault := _fault(request)) is not None:
        await wire.json(error(fault, "bad_request"), "400 Bad Request")
    elif request.get("stream"):
        await _stream(wire, request)
    else:
        message, finish = _answer(request)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        await wire.json(completion(choices=[choice]))


GOOD = SCRIPTS | {"good": good}


def _answer(request: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The message, and why it ends."""
    message: dict[str, Any] = {"role": "assistant", "content": HELLO, "refusal": None}
    if request["messages"][-1]["role"] == "tool":
        return message | {"content": AFTER_CALLS}, "stop"
    if request.get("tools") and request.get("tool_choice") != "none":
        tool = _called(request)
        cities = CITIES if request.get("parallel_tool_calls", True) else CITIES[:1]
        return message | {"content": None, "tool_calls": [_call(i, tool, city) for i, city in enumerate(cities)]}, (
            "tool_calls"
        )
    if request.get("response_format", {}).get("type") in ("json_schema", "json_object"):
        return message | {"content": json.dumps(PERSON)}, "stop"
    return message | {"reasoning_content": THOUGHT}, "stop"


def _called(request: dict[str, Any]) -> str:
    """The tool that the client demands, or its first."""
    choice = request.get("tool_choice")
    tool = choice if isinstance(choice, dict) else request["tools"][0]
    return str(tool["function"]["name"])


def _call(index: int, tool: str, city: str) -> dict[str, Any]:
    arguments = json.dumps(PERSON if "erson" in tool else {"city": city})  # some clients ask for JSON by a tool
    return {"id": f"call_{index}", "type": "function", "function": {"name": tool, "arguments": arguments}}


def _fault(request: dict[str, Any]) -> str | None:
    """What this provider would not take."""
    calls = {call["id"] for message in request["messages"] for call in message.get("tool_calls") or ()}
    results = {message["tool_call_id"] for message in request["messages"] if message["role"] == "tool"}
    if calls != results:
        return f"calls {sorted(calls)} and results {sorted(results)} are not the same"
    schema = request.get("response_format", {}).get("json_schema", {}).get("schema")
    if schema is not None:
        try:
            jsonschema.validate(PERSON, schema)
        except (jsonschema.ValidationError, jsonschema.SchemaError) as wrong:
            return f"not the schema that was meant: {wrong.message}"
    return None


async def _stream(wire: Wire, request: dict[str, Any]) -> None:
    message, finish = _answer(request)
    await wire.start_events()
    await wire.event(chunk({"role": "assistant", "content": "" if message["content"] else None, "refusal": None}))
    for delta in _deltas(message):
        await wire.event(chunk(delta))
    await wire.event(chunk({}, finish))
    if (request.get("stream_options") or {}).get("include_usage"):
        await wire.event(chunk(usage=USAGE))
    await wire.end()


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Texts in pieces of four characters; calls one after the other, name first, then arguments in pieces."""
    for name in ("reasoning_content", "content"):
        yield from ({name: piece} for piece in _pieces(message.get(name) or ""))
    for index, call in enumerate(message.get("tool_calls") or []):
        yield {"tool_calls": [call | {"index": index, "function": call["function"] | {"arguments": ""}}]}
        for piece in _pieces(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str) -> list[str]:
    return [text[start : start + 4] for start in range(0, len(text), 4)]


def _embeddings(request: dict[str, Any]) -> dict[str, Any]:
    """One vector an input: how long it is, and two constants."""
    inputs = request["input"] if isinstance(request["input"], list) else [request["input"]]
    vectors = [[float(len(text)), -0.5, 0.25] for text in inputs]
    told: list[Any] = vectors
    if request.get("encoding_format") == "base64":
        told = [base64.b64encode(struct.pack("<3f", *vector)).decode() for vector in vectors]
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(told)]
    return {"object": "list", "data": data, "model": "mock", "usage": {"prompt_tokens": 1, "total_tokens": 1}}
