"""The stepping thread's last moments: callers that leave while it closes neither kill it nor leave blocks behind."""

import threading
import time

import pytest
from toy_runner import ToyRunner

from engine.engine import Engine, Output
from engine.errors import EngineOverloaded, EngineStopped
from engine.request import Request
from engine.stepper import Stepper
from engine.types import EngineOptions, GenerationRequest, SamplingParams

OPTIONS = EngineOptions(model="toy", max_wait_ms=0.0, max_batch_size=2, max_waiting=2)


class Stage:
    """A started stepper with four open requests, two of them running, and all that it delivered."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self.engine = Engine(OPTIONS, ToyRunner(step_s=0.002))
        self.stepper = Stepper(self.engine, OPTIONS, self.outputs.extend)
        sampling = SamplingParams(temperature=0.0, ignore_eos=True)
        self.requests = [
            self.engine.prepare(GenerationRequest(request_id=str(i), prompt_token_ids=[i], sampling=sampling))
            for i in range(4)
        ]

    def start(self) -> None:
        self.stepper.start()
        for request in self.requests:
            self.stepper.submit(request)
        while len(self.engine.scheduler.running) < 2:
            time.sleep(0.001)

    def ends(self) -> dict[Request, str]:
        assert all(isinstance(output.error, EngineStopped) for output in self.outputs if output.error)
        return {output.request: str(output.error) for output in self.outputs if output.error}

    def check_nothing_is_left(self) -> None:
        self.engine.check_integrity()
        stats = self.engine.stats()
        assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, stats.num_blocks)


def test_a_caller_may_leave_while_the_open_requests_are_being_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    abort = stage.engine.abort

    def abort_while_another_leaves(request: Request) -> None:
        leaving = threading.Thread(target=stage.stepper.abort, args=(stage.requests[-1],))
        leaving.start()
        leaving.join(5)
        assert not leaving.is_alive()
        abort(request)

    monkeypatch.setattr(stage.engine, "abort", abort_while_another_leaves)
    stage.start()
    stage.stepper.stop()
    assert stage.ends() == dict.fromkeys(stage.requests, "the engine was closed")
    stage.check_nothing_is_left()


def test_a_caller_that_leaves_after_the_last_step_gives_its_blocks_back(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    wait_for_work = stage.stepper._wait_for_work

    def wait_and_leave() -> bool:
        goes_on = wait_for_work()
        if not goes_on:
            stage.stepper.abort(stage.requests[0])
        return goes_on

    monkeypatch.setattr(stage.stepper, "_wait_for_work", wait_and_leave)
    stage.start()
    stage.stepper.stop()
    assert stage.ends() == dict.fromkeys(stage.requests[1:], "the engine was closed")
    stage.check_nothing_is_left()


def test_places_are_counted_until_an_answer_ends() -> None:
    stage = Stage()
    stage.start()
    one_more = stage.engine.prepare(GenerationRequest(request_id="5", prompt_token_ids=[5], sampling=SamplingParams()))
    with pytest.raises(EngineOverloaded, match="4 requests"):
        stage.stepper.submit(one_more)
    stage.stepper.abort(stage.requests[0])
    stage.stepper.submit(one_more)
    stage.stepper.stop()
    stage.check_nothing_is_left()
