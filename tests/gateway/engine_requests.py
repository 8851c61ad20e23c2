"""Requests to an engine backend as a client would write them, and its answers checked against OpenAI's schemas."""

import asyncio
import json
import time
from typing import Any

from engine.client import EngineClient
from gateway.upstream.engine_backend import EngineBackend
from gateway.upstream.types import Outbound, Reply
from gateway.wire.assemble import assemble
from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completion
from gateway.wire.embeddings import parse_embedding
from gateway.wire.sse import DONE
from tests.conformance.openai_schemas import conforms

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def chat(**fields: Any) -> Outbound:
    body = {"model": "m", "messages": QUESTION, "max_tokens": 12, "temperature": 0} | fields
    return outbound(parse_chat(json.dumps(body).encode()))


def completion(prompt: Any, **fields: Any) -> Outbound:
    body = {"model": "m", "prompt": prompt, "temperature": 0} | fields
    return outbound(parse_completion(json.dumps(body).encode()))


def embedding(text: Any, **fields: Any) -> Outbound:
    return outbound(parse_embedding(json.dumps({"model": "m", "input": text} | fields).encode()))


def outbound(inference: Any, salt: str = "") -> Outbound:
    return Outbound(request_id="r1", inference=inference, upstream_model="smollm2", cache_salt=salt)


async def ask(backend: EngineBackend, **fields: Any) -> Any:
    """A chat's whole answer."""
    return await answered(await backend.send(chat(**fields)), "CreateChatCompletionResponse")


async def complete(backend: EngineBackend, prompt: Any, **fields: Any) -> Any:
    return await answered(await backend.send(completion(prompt, **fields)), "CreateCompletionResponse")


async def answered(reply: Reply, schema: str) -> Any:
    """A whole answer, or a stream put together; every chunk of a chat is checked, too."""
    if reply.body is not None:
        return whole(reply, schema)
    payloads = await payloads_of(reply)
    assert payloads[-1] == DONE
    if schema == "CreateChatCompletionResponse":
        for payload in payloads[:-1]:
            conforms(payload, "CreateChatCompletionStreamResponse")
    choices = {choice["index"] for payload in payloads[:-1] for choice in json.loads(payload)["choices"]}
    return conforms(assemble(payloads, num_choices=len(choices)) or b"null", schema)


def whole(reply: Reply, schema: str = "CreateChatCompletionResponse") -> Any:
    assert reply.status == 200
    assert reply.body is not None
    return conforms(reply.body, schema)


def said(answer: Any) -> list[str]:
    return [choice["message"]["content"] for choice in answer["choices"]]


async def payloads_of(reply: Reply) -> list[bytes]:
    return [payload for payloads in await payload_lists(reply) for payload in payloads]


async def payload_lists(reply: Reply) -> list[list[bytes]]:
    """A stream's payloads, those together that came together."""
    assert reply.events is not None
    lists = [payloads async for payloads in reply.events]
    await reply.aclose()
    return lists


async def idle(client: EngineClient, within_s: float = 5.0) -> None:
    """Returns once nothing runs any more and no block is held."""
    until = time.monotonic() + within_s
    while (stats := client.stats()).num_running or stats.num_waiting or stats.num_free_blocks < stats.num_blocks:
        assert time.monotonic() < until, f"the engine is still busy: {stats}"
        await asyncio.sleep(0.01)
