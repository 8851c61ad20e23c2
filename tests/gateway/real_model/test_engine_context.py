"""Prompts against the bundled engine's context: too long, far too long, and up to its end."""

import asyncio
import statistics
import time
from typing import Any

import pytest

from engine.client import EngineClient
from gateway.errors import ContextLengthExceeded
from gateway.upstream.engine_backend import EngineBackend
from tests.gateway.engine_requests import (
    chat,
    completion,
    whole,
)
from tests.gateway.real_model.conftest import CONTEXT

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_that_is_too_long_says_by_how_much(backend: EngineBackend, stream: bool) -> None:
    with pytest.raises(ContextLengthExceeded) as caught:
        await backend.send(chat(messages=[{"role": "user", "content": "sea " * (CONTEXT + 88)}], stream=stream))
    error = caught.value
    assert (error.param, error.code, error.status) == ("messages", "context_length_exceeded", 400)
    assert str(CONTEXT) in error.message
    assert any(int(word) > CONTEXT for word in error.message.replace(".", "").split() if word.isdigit())
    with pytest.raises(ContextLengthExceeded) as caught:
        await backend.send(completion([1] * CONTEXT))
    assert caught.value.param == "prompt"


async def test_megabytes_of_text_are_refused_without_reading_them(
    backend: EngineBackend, client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(text: str | list[dict[str, Any]]) -> list[int]:
        raise AssertionError("this would take seconds")

    monkeypatch.setattr(client, "encode", read)
    monkeypatch.setattr(client, "encode_chat", read)
    text = "a b " * 500_000
    for send in (chat(messages=[{"role": "user", "content": text}]), completion(text)):
        with pytest.raises(ContextLengthExceeded):
            await backend.send(send)


async def test_an_answer_ends_with_the_context(backend: EngineBackend) -> None:
    answer = whole(await backend.send(completion([1] * (CONTEXT - 3), max_tokens=100)), "CreateCompletionResponse")
    assert answer["usage"]["total_tokens"] <= CONTEXT
    assert answer["choices"][0]["finish_reason"] in ("length", "stop")


async def test_a_long_prompt_does_not_hold_up_the_others(backend: EngineBackend) -> None:
    """While it is tokenised, the event loop turns: the tokeniser works in a thread and lets go of the GIL."""
    text = "".join(f"word{i} " for i in range(8_000))[: CONTEXT * 128]
    sent = chat(messages=[{"role": "user", "content": text}])

    async def longest_gap_and_whole() -> tuple[float, float]:
        gaps = [0.0]
        began = last = time.perf_counter()
        task = asyncio.create_task(backend.send(sent))
        while not task.done():
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now
        with pytest.raises(ContextLengthExceeded):
            await task
        return max(gaps), last - began

    # The median of a few: on a busy machine any one gap may be somebody else's fault.
    ratios = [gap / whole for gap, whole in [await longest_gap_and_whole() for _ in range(5)]]
    assert statistics.median(ratios) < 0.6  # 0.95 if the GIL is held, about 0.2 if not
