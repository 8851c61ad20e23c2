"""The bundled engine when it is full, stops or breaks: a toy model, so that timing is in our hands."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.client import EngineClient
from engine.types import EngineOptions
from gateway.errors import InvalidRequestError, OverloadedError
from gateway.upstream.engine_backend import EngineBackend
from gateway.upstream.errors import UpstreamFailure
from gateway.wire.chat import parse_chat
from tests.engine.toy_runner import ToyRunner
from tests.gateway.engine_requests import (
    QUESTION,
    chat,
    completion,
    embedding,
    idle,
    outbound,
    payloads_of,
    whole,
)

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def toy(runner: ToyRunner, **options: Any) -> AsyncIterator[EngineBackend]:
    client = EngineClient(EngineOptions(model="toy", **{"max_wait_ms": 0.0} | options), runner=runner)
    await client.start()
    backend = EngineBackend("toy", client)
    yield backend
    await backend.aclose()
    await backend.aclose()


async def test_a_full_queue_is_told_with_a_time_to_come_back() -> None:
    async with toy(ToyRunner(step_s=0.02), max_batch_size=1, max_waiting=1) as backend:
        endless = chat(stream=True, max_tokens=400, ignore_eos=True)
        first = await backend.send(endless)
        second = asyncio.create_task(backend.send(endless))
        await asyncio.sleep(0.1)
        for refused in (endless, chat(max_tokens=1)):
            with pytest.raises(OverloadedError) as caught:
                await backend.send(refused)
            assert caught.value.headers == {"retry-after": "1"}
            assert caught.value.status == 503
        await first.aclose()
        await (await second).aclose()
        await idle(backend._client)


async def test_of_a_request_that_finds_no_room_for_all_its_prompts_nothing_is_left() -> None:
    async with toy(ToyRunner(step_s=0.02), max_batch_size=2, max_waiting=2) as backend:
        endless = chat(stream=True, max_tokens=400, ignore_eos=True)
        others = [await backend.send(endless) for _ in range(2)]
        third = asyncio.create_task(backend.send(endless))
        await asyncio.sleep(0.1)
        with pytest.raises(OverloadedError):
            await backend.send(completion(["x"] * 2, max_tokens=50))  # the second one finds no room
        for reply in (*others, await third):
            await reply.aclose()
        await idle(backend._client, within_s=3.0)


@pytest.mark.parametrize(("max_batch_size", "max_waiting"), [(64, 200), (2, 1), (1, 0)])
async def test_an_idle_engine_takes_more_prompts_than_its_queue_has_places(
    max_batch_size: int, max_waiting: int
) -> None:
    async with toy(ToyRunner(), max_batch_size=max_batch_size, max_waiting=max_waiting) as backend:
        reply = await backend.send(embedding(["x", "yz"] * 400))
        assert reply.body is not None
        assert len(json.loads(reply.body)["data"]) == 800
        n = min(2, max_batch_size + max_waiting)
        answer = whole(await backend.send(completion(["x"] * 20, n=n, max_tokens=2)), "CreateCompletionResponse")
        assert len(answer["choices"]) == 20 * n


@pytest.mark.parametrize("fields", [{"n": 4}, {"best_of": 4}])
async def test_more_choices_of_a_prompt_than_there_are_places_are_refused_for_good(fields: dict[str, Any]) -> None:
    async with toy(ToyRunner(), max_batch_size=2, max_waiting=1) as backend:
        with pytest.raises(InvalidRequestError, match="must be at most 3 on this engine, not 4") as caught:
            await backend.send(completion("x", **fields))
        assert caught.value.param == next(iter(fields))


async def test_a_schema_of_any_depth_gets_an_answer_or_a_plain_word() -> None:
    async with toy(ToyRunner()) as backend:
        for depth in range(900, 1000, 4):  # about as deep as a body can be read
            parameters = '{"properties":' * depth + "{}" + "}" * depth
            tools = f'[{{"type":"function","function":{{"name":"f","parameters":{parameters}}}}}]'
            body = f'{{"model":"m","messages":{json.dumps(QUESTION)},"tools":{tools},"tool_choice":"required"}}'
            with pytest.raises(InvalidRequestError, match="nested"):
                await backend.send(outbound(parse_chat(body.encode())))


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_stops_breaks_its_answers_off(stream: bool) -> None:
    async with toy(ToyRunner(step_s=0.02)) as backend:
        outbound = chat(stream=stream, max_tokens=400, ignore_eos=True)
        if stream:
            reply = await backend.send(outbound)
            assert reply.events is not None
            await anext(reply.events)
            await backend.aclose()
            with pytest.raises(UpstreamFailure):
                await payloads_of(reply)
        else:
            task = asyncio.create_task(backend.send(outbound))
            await asyncio.sleep(0.1)
            await backend.aclose()
            with pytest.raises(UpstreamFailure):
                await task
        with pytest.raises(UpstreamFailure):
            await backend.send(outbound)


async def test_a_step_that_fails_is_a_failure_of_this_upstream() -> None:
    async with toy(ToyRunner(fail=RuntimeError("out of memory"))) as backend:
        with pytest.raises(UpstreamFailure, match="out of memory"):
            await backend.send(chat())
        assert whole(await backend.send(chat(max_tokens=3, ignore_eos=True)))["usage"]["completion_tokens"] == 3


async def test_a_model_without_a_chat_template_says_so() -> None:
    async with toy(ToyRunner(chat_template=None)) as backend:
        with pytest.raises(InvalidRequestError, match="chat template") as caught:
            await backend.send(chat())
        assert caught.value.param == "messages"
