"""Many coroutines over one stepping thread: streams, cancellation, overload, failures, and the end of the engine."""

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from toy_runner import EOS, ToyRunner, answer_alone

from engine.client import EngineClient
from engine.errors import EngineOverloaded, EngineStopped, InvalidRequest, PromptTooLong, StepFailed
from engine.types import Delta, EngineOptions, GenerationRequest, Grammar, SamplingParams

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def running(toy: ToyRunner, **options: Any) -> AsyncIterator[EngineClient]:
    client = EngineClient(EngineOptions(model="toy", **{"max_wait_ms": 0.0, **options}), runner=toy)
    await client.start()
    try:
        yield client
    finally:
        await client.aclose()
        client.check_integrity()
        stats = client.stats()
        assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, stats.num_blocks)


def request(prompt: list[int], name: str = "r", **sampling: Any) -> GenerationRequest:
    params = SamplingParams(**{"temperature": 0.0, "ignore_eos": True, **sampling})
    return GenerationRequest(request_id=name, prompt_token_ids=prompt, sampling=params)


async def collect(client: EngineClient, params: GenerationRequest) -> list[Delta]:
    return [delta async for delta in client.generate(params)]


def tokens(answer: list[Delta]) -> list[int]:
    return [token for delta in answer for token in delta.token_ids]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.002)


async def test_fifty_concurrent_requests_each_get_their_own_answer() -> None:
    async with running(ToyRunner(num_blocks=40), max_batch_size=16, max_batch_tokens=64) as client:
        prompts = [[i % 5] * (1 + 3 * i % 50) + [i] for i in range(50)]
        answers = await asyncio.gather(*(collect(client, request(each, max_tokens=20)) for each in prompts))
    for prompt, answer in zip(prompts, answers, strict=True):
        assert tokens(answer) == answer_alone(prompt, 20, ignore_eos=True)
        assert [delta.finish_reason for delta in answer if delta.finish_reason] == ["length"]
        assert "".join(delta.text for delta in answer) == bytes(t for t in tokens(answer) if t != EOS).decode()


async def test_deltas_come_while_the_answer_is_being_made() -> None:
    async with running(ToyRunner(step_s=0.005)) as client:
        stream = client.generate(request([1], max_tokens=200))
        first = await anext(stream)
        assert (first.num_generated_tokens, first.finish_reason) == (1, None)
        await stream.aclose()


async def test_an_idle_engine_waits_for_company_and_runs_them_in_one_step() -> None:
    toy = ToyRunner()
    async with running(toy, max_wait_ms=100.0) as client:
        first = asyncio.create_task(collect(client, request([1], "first", max_tokens=2)))
        await asyncio.sleep(0.02)
        await asyncio.gather(first, collect(client, request([2], "second", max_tokens=2)))
    assert [[name for name, _, _ in plan] for plan in toy.plans] == [["first", "second"]] * 2


async def test_a_full_batch_does_not_wait() -> None:
    async with running(ToyRunner(), max_wait_ms=60_000.0, max_batch_size=2) as client:
        async with asyncio.timeout(5):
            await asyncio.gather(*(collect(client, request([i], max_tokens=3)) for i in range(2)))


async def test_closing_a_stream_frees_its_blocks_within_a_step() -> None:
    async with running(ToyRunner(step_s=0.002)) as client:
        stream = client.generate(request([1] * 100, max_tokens=400))
        await anext(stream)
        assert client.stats().num_free_blocks < 64
        steps = client.stats().steps_total
        await stream.aclose()
        await until(lambda: client.stats().num_free_blocks == 64)
        assert client.stats().steps_total <= steps + 2


async def test_cancelling_a_waiting_task_frees_its_place() -> None:
    async with running(ToyRunner(step_s=0.002), max_batch_size=1) as client:
        long = asyncio.create_task(collect(client, request([1], max_tokens=300)))
        await until(lambda: client.stats().num_running == 1)
        waiting = asyncio.create_task(collect(client, request([2], max_tokens=300)))
        await until(lambda: client.stats().num_waiting == 1)
        waiting.cancel()
        await until(lambda: client.stats().num_waiting == 0)
        long.cancel()
        await asyncio.gather(long, waiting, return_exceptions=True)


async def test_cancelling_all_at_random_moments_leaves_nothing_behind() -> None:
    async with running(ToyRunner(num_blocks=20), max_batch_tokens=32) as client:
        tasks = [asyncio.create_task(collect(client, request([i] * 30, max_tokens=100))) for i in range(40)]
        for i, task in enumerate(tasks):
            if i % 4 == 0:
                await asyncio.sleep(0.003)
            if i % 3:
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for i, result in enumerate(results):
            if isinstance(result, list):
                assert tokens(result) == answer_alone([i] * 30, 100, ignore_eos=True)
            else:
                assert isinstance(result, asyncio.CancelledError)
        await until(lambda: client.stats().num_free_blocks == 20)


async def test_a_full_queue_refuses_and_the_others_go_on() -> None:
    async with running(ToyRunner(step_s=0.002), max_batch_size=2, max_waiting=3) as client:
        tasks = [asyncio.create_task(collect(client, request([i], max_tokens=20))) for i in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(EngineOverloaded, match="5 requests"):
            await collect(client, request([9]))
        assert all(len(tokens(answer)) == 20 for answer in await asyncio.gather(*tasks))
        assert len(await collect(client, request([9], max_tokens=1))) == 1


async def test_an_answer_that_is_finished_but_unread_takes_no_place() -> None:
    async with running(ToyRunner(), max_batch_size=1, max_waiting=0) as client:
        unread = client.generate(request([1], max_tokens=5))
        first = await anext(unread)
        await until(lambda: client.stats().num_running == 0)
        assert len(tokens(await collect(client, request([2], max_tokens=3)))) == 3
        assert tokens([first] + [delta async for delta in unread]) == answer_alone([1], 5, ignore_eos=True)


async def test_bad_requests_fail_alone_before_any_delta() -> None:
    async with running(ToyRunner(context=100)) as client:
        good = asyncio.create_task(collect(client, request([1], max_tokens=50)))
        with pytest.raises(InvalidRequest) as caught:
            await collect(client, request([1], temperature=float("nan")))
        assert caught.value.param == "temperature"
        with pytest.raises(PromptTooLong, match=r"100 tokens.*100"):
            await collect(client, request([1] * 100))
        assert len(tokens(await good)) == 50


async def test_a_failed_step_ends_the_running_and_serves_the_next() -> None:
    toy = ToyRunner(step_s=0.002)
    async with running(toy) as client:
        tasks = [asyncio.create_task(collect(client, request([i] * 20, max_tokens=100))) for i in range(3)]
        await until(lambda: client.stats().num_running == 3)
        toy.fail = MemoryError("no room")
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [StepFailed] * 3
        assert "MemoryError: no room" in str(results[0])
        assert tokens(await collect(client, request([1] * 20, max_tokens=5))) == answer_alone([1] * 20, 5)


async def test_closing_ends_running_requests_and_refuses_new_ones() -> None:
    async with running(ToyRunner(step_s=0.002)) as client:
        tasks = [asyncio.create_task(collect(client, request([i], max_tokens=400))) for i in range(3)]
        await until(lambda: client.stats().num_running == 3)
        await client.aclose()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [EngineStopped] * 3
        with pytest.raises(EngineStopped):
            await collect(client, request([1]))
        await client.aclose()


async def test_the_threads_death_is_told_to_everybody() -> None:
    client = EngineClient(EngineOptions(model="toy"), runner=ToyRunner())
    await client.start()
    assert client._engine is not None
    client._engine.scheduler.schedule = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(EngineStopped, match="ZeroDivisionError"):
        await collect(client, request([1]))
    with pytest.raises(EngineStopped, match="ZeroDivisionError"):
        await collect(client, request([1]))
    await client.aclose()


async def test_an_engine_that_was_never_started_says_so() -> None:
    client = EngineClient(EngineOptions(model="toy"), runner=ToyRunner())
    await client.aclose()
    with pytest.raises(EngineStopped, match="not been started"):
        client.encode("hi")


def test_two_event_loops_can_share_an_engine() -> None:
    toy = ToyRunner()
    client = EngineClient(EngineOptions(model="toy"), runner=toy)
    asyncio.run(client.start())
    answers: list[list[Delta]] = []

    def ask(token: int) -> None:
        answers.append(asyncio.run(collect(client, request([token], max_tokens=30))))

    threads = [threading.Thread(target=ask, args=(token,)) for token in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(client.aclose())
    assert sorted(tokens(answer) for answer in answers) == sorted(
        answer_alone([token], 30, ignore_eos=True) for token in (1, 2)
    )


def test_the_client_is_torch_free() -> None:
    heavy = "{'torch', 'numpy', 'tokenizers', 'jinja2', 'transformers'}"
    code = f"import sys, engine.client; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_all_choices_come_in_one_stream() -> None:
    async with running(ToyRunner(num_blocks=20), max_batch_size=3) as client:
        prompts = [[i] * 30 for i in range(4)]
        params = [
            msgspec.structs.replace(request(each, temperature=1.0, seed=5, max_tokens=30), n=3) for each in prompts
        ]
        found = await asyncio.gather(*(collect(client, each) for each in params))
    for prompt, deltas in zip(prompts, found, strict=True):
        for index in range(3):
            mine = [delta for delta in deltas if delta.index == index]
            assert tokens(mine) == answer_alone(prompt, 30, seed=5 + index, ignore_eos=True)
            assert [delta.finish_reason for delta in mine if delta.finish_reason] == ["length"]


async def test_leaving_ends_all_choices() -> None:
    async with running(ToyRunner(step_s=0.002), max_batch_size=2) as client:
        stream = client.generate(msgspec.structs.replace(request([1] * 20, max_tokens=400), n=4, best_of=4))
        await anext(stream)
        await stream.aclose()
        await until(lambda: client.stats().num_free_blocks == 64)


async def test_every_choice_takes_a_place() -> None:
    async with running(ToyRunner(step_s=0.002), max_batch_size=2, max_waiting=3) as client:
        four = asyncio.create_task(collect(client, msgspec.structs.replace(request([1], max_tokens=20), n=4)))
        await asyncio.sleep(0)
        with pytest.raises(EngineOverloaded, match="4 requests"):
            await collect(client, msgspec.structs.replace(request([2], max_tokens=20), n=2))
        assert len(await collect(client, request([3], max_tokens=1))) == 1
        assert len(tokens(await four)) == 80


async def test_a_grammar_is_compiled_beside_the_streams() -> None:
    async with running(ToyRunner()) as client:
        params = msgspec.structs.replace(
            request([1], max_tokens=50), grammar=Grammar(kind="choice", source='["yes", "no"]')
        )
        assert "".join(delta.text for delta in await collect(client, params)) in ("yes", "no")
        with pytest.raises(InvalidRequest, match="choices"):
            await collect(client, msgspec.structs.replace(params, grammar=Grammar(kind="choice", source="[]")))


async def test_the_time_a_request_took_is_told_even_when_its_caller_leaves() -> None:
    async with running(ToyRunner(num_blocks=40)) as client:
        told: list[int] = []
        async for delta in client.generate(request([1, 2], max_tokens=5), told.append):
            assert 0 < len(told) <= delta.num_generated_tokens  # steps ahead of their reader are told at once
        assert all(part > 0 for part in told)
        told.clear()
        async with contextlib.aclosing(client.generate(request([1, 2], max_tokens=1000), told.append)) as answer:
            await anext(answer)
        assert sum(told) > 0
