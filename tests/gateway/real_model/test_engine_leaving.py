"""Who leaves the bundled engine, in whatever way, leaves nothing behind."""

import asyncio

import pytest

from engine.client import EngineClient
from gateway.upstream.engine_backend import EngineBackend
from tests.gateway.engine_requests import (
    chat,
    idle,
)

pytestmark = pytest.mark.anyio


async def test_closing_a_stream_frees_its_sequences(backend: EngineBackend, client: EngineClient) -> None:
    reply = await backend.send(chat(n=3, stream=True, max_tokens=400, ignore_eos=True))
    assert reply.events is not None
    while client.stats().num_running < 3:
        await anext(reply.events)
    await reply.aclose()
    await reply.aclose()
    await idle(client, within_s=3.0)


async def test_a_stream_that_nobody_reads_is_freed_too(backend: EngineBackend, client: EngineClient) -> None:
    reply = await backend.send(chat(stream=True, max_tokens=400, ignore_eos=True))
    await reply.aclose()
    await idle(client, within_s=3.0)


async def test_cancelling_a_whole_answer_frees_its_sequences(backend: EngineBackend, client: EngineClient) -> None:
    task = asyncio.create_task(backend.send(chat(n=2, max_tokens=400, ignore_eos=True)))
    while client.stats().num_running < 2:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await idle(client, within_s=3.0)
