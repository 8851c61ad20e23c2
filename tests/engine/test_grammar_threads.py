"""Masks and compilations that take too long, or never end, cost their own request and no other."""

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.engine import Engine
from engine.errors import EngineOverloaded, InvalidRequest
from engine.grammar import GrammarCompiler, MaskWorker, Matcher
from engine.grammar.threads import BoundedCalls, num_left_behind
from engine.runner import Runner
from engine.types import EngineOptions, GenerationRequest, Grammar
from tests.engine.grammars import COLUMNS, Bytes, compiled


def test_masks_are_made_beside_the_work() -> None:
    worker = MaskWorker(COLUMNS)
    matchers = {3: compiled("regex", "a"), 0: compiled("regex", "[bc]")}
    job = worker.begin(matchers)
    masks = job.collect()
    assert list(masks) == [3, 0]
    for row, matcher in matchers.items():
        expected = np.zeros((COLUMNS + 31) // 32, np.int32)
        matcher.fill_mask(expected)
        assert (masks[row] == expected).all()
        assert masks[row].dtype == np.int32
    assert worker.begin({}).collect() == {}


class Slow:
    """What llguidance does with some grammars: nothing stops it. Here the test does, at its end."""

    def __init__(self, until: threading.Event) -> None:
        self.until = until
        self.done = False
        self.error = ""

    def fill_mask(self, row: Any) -> None:
        self.until.wait(30)
        row[:] = -1
        self.done = True

    def give_up(self, why: str) -> None:
        self.error = why


@pytest.fixture
def end() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()
    while num_left_behind():
        time.sleep(0.01)


def test_masks_do_not_wait_for_the_caller(end: threading.Event) -> None:
    slow = Slow(end)
    job = MaskWorker(COLUMNS).begin({0: slow})
    assert not slow.done
    end.set()
    job.collect()
    assert slow.done


def test_a_mask_that_never_comes_fails_its_row_alone(end: threading.Event, caplog: pytest.LogCaptureFixture) -> None:
    worker = MaskWorker(COLUMNS, seconds=0.2)
    stuck, also_stuck = Slow(end), Slow(end)
    rows = {5: compiled("regex", "a"), 1: stuck, 2: compiled("regex", "b"), 0: also_stuck, 4: compiled("regex", "c")}
    masks = worker.begin(rows).collect()
    assert list(masks) == list(rows)
    for row in (5, 2, 4):
        expected = np.zeros((COLUMNS + 31) // 32, np.int32)
        rows[row].fill_mask(expected)
        assert (masks[row] == expected).all()
    assert stuck.error
    assert also_stuck.error
    assert num_left_behind() == 2
    assert "left behind" in caplog.text
    assert not worker.begin({0: compiled("regex", "a")}).collect()[0].all()  # there is a new thread
    end.set()
    while num_left_behind():
        time.sleep(0.01)
    assert stuck.done  # and wrote a mask at last, which goes nowhere
    assert not masks[1].any()
    assert not masks[0].any()


def test_a_mask_that_fails_fails_its_row_alone() -> None:
    class Broken(Slow):
        def fill_mask(self, row: Any) -> None:
            row[:] = -1
            raise RuntimeError("no mask today")

    broken = Broken(threading.Event())
    masks = MaskWorker(COLUMNS).begin({0: broken, 1: compiled("regex", "a")}).collect()
    assert "no mask today" in broken.error
    assert not masks[0].any()
    assert masks[1].any()


def test_an_engine_goes_on_without_the_answer_whose_mask_never_comes(smollm2_path: Path, end: threading.Event) -> None:
    runner = Runner(EngineOptions(model=str(smollm2_path), kv_cache_mb=8, max_model_len=256))
    runner._masks = MaskWorker(runner.info.vocab_size, seconds=0.3)
    engine = Engine(EngineOptions(model=str(smollm2_path)), runner)
    prompt = engine.tokenizer.encode("Letters: ")
    grammar = Grammar(kind="regex", source="[a-z]{5}")
    good, bad = (
        engine.add_request(GenerationRequest(request_id=name, prompt_token_ids=prompt, grammar=grammar))
        for name in ("good", "bad")
    )
    assert isinstance(bad.matcher, Matcher)
    bad.matcher.fill_mask = Slow(end).fill_mask  # type: ignore[method-assign]
    texts, errors = "", []
    while engine.has_work:
        for output in engine.step():
            if output.error is not None:
                assert output.request is bad
                errors.append(output.error)
            else:
                assert output.request is good
                assert output.delta is not None
                texts += output.delta.text
    assert re.fullmatch("[a-z]{5}", texts)
    assert [type(error) for error in errors] == [InvalidRequest]
    assert "takes too long" in str(errors[0])
    engine.check_integrity()


def test_calls_are_bounded_in_time_and_number(end: threading.Event) -> None:
    calls = BoundedCalls("a test", seconds=0.1, most=2)
    assert calls.call(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        calls.call(lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            calls.call(end.wait)
    with pytest.raises(EngineOverloaded):
        calls.call(lambda: 5)
    end.set()
    while num_left_behind():
        time.sleep(0.01)
    assert calls.call(lambda: 5) == 5


def test_nothing_is_compiled_while_too_many_threads_are_stuck(end: threading.Event) -> None:
    for _ in range(4):
        with pytest.raises(TimeoutError):
            BoundedCalls("a test", seconds=0.05, most=1).call(end.wait)
    with pytest.raises(EngineOverloaded):
        GrammarCompiler(Bytes(), COLUMNS).compile(Grammar(kind="regex", source="a"))
    assert compiled("regex", "a")
    end.set()


def test_a_grammar_that_takes_too_long_to_compile_is_refused(end: threading.Event) -> None:
    class Stuck(Bytes):
        def token_bytes(self, token_id: int) -> bytes:
            end.wait()
            return super().token_bytes(token_id)

    with pytest.raises(InvalidRequest, match="too long to compile") as caught:
        GrammarCompiler(Stuck(), COLUMNS, seconds=0.1).compile(Grammar(kind="regex", source="a"))
    assert caught.value.param == "grammar"
