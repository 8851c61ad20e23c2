"""Requests to an engine backend as a client would write them, and its answers checked against OpenAI's schemas."""

import json
from typing import Any

from gateway.upstream.engine_backend import EngineBackend
from gateway.upstream.types import Outbound, Reply
from gateway.wire.assemble import assemble
from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completion
from gateway.wire.sse import DONE
from tests.conformance.openai_schemas import conforms

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def chat(**fields: Any) -> Outbound:
    body = {"model": "m", "messages": QUESTION, "max_tokens": 12, "temperature": 0} | fields
    return outbound(parse_chat(json.dumps(body).encode()))


def completion(prompt: Any, **fields: Any) -> Outbound:
    body = {"model": "m", "prompt": prompt, "temperature": 0} | fields
    return outbound(parse_completion(json.dumps(body).encode()))


def outbound(inference: Any) -> Outbound:
    return Outbound(request_id="r1", inference=inference, upstream_model="smollm2")


async def ask(backend: EngineBackend, **fields: Any) -> Any:
    """A chat's whole answer."""
    return await answered(await backend.send(chat(**fields)), "CreateChatCompletionResponse")


async def complete(backend: EngineBackend, prompt: Any, **fields: Any) -> Any:
    return await answered(await backend.send(completion(prompt, **fields)), "CreateCompletionResponse")


async def answered(reply: Reply, schema: str) -> Any:
    """A whole answer, or a stream put together; every chunk of a chat is checked, too."""
    if reply.body is not None:
        return conforms(reply.body, schema)
    assert reply.events is not None
    payloads = [payload for payloads in [each async for each in reply.events] for payload in payloads]
    await reply.aclose()
    assert payloads[-1] == DONE
    if schema == "CreateChatCompletionResponse":
        for payload in payloads[:-1]:
            conforms(payload, "CreateChatCompletionStreamResponse")
    choices = {choice["index"] for payload in payloads[:-1] for choice in json.loads(payload)["choices"]}
    return conforms(assemble(payloads, num_choices=len(choices)) or b"null", schema)
