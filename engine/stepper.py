"""The one thread that steps the engine: takes commands in order, hands outputs to a callback. Knows no asyncio."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from engine.engine import Engine, Output
from engine.errors import EngineOverloaded, EngineStopped, StepFailed
from engine.request import Request
from engine.types import EngineOptions

logger = logging.getLogger(__name__)


class Stepper:
    """`deliver` is called on the stepping thread after each step, with that step's outputs."""

    def __init__(self, engine: Engine, options: EngineOptions, deliver: Callable[[list[Output]], None]) -> None:
        self._engine = engine
        self._deliver = deliver
        self._max_batch_size = options.max_batch_size
        self._max_open = engine.max_choices
        self._max_wait_s = options.max_wait_ms / 1000
        self._condition = threading.Condition()
        self._commands: deque[tuple[Callable[[Request], object], Request]] = deque()
        self._open: dict[Request, None] = {}  # submitted, and not yet at an end
        self._closing = False
        self._reason = "the engine was closed"
        self._thread = threading.Thread(target=self._main, name="engine-stepper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Queue a prepared request. Raises EngineStopped, EngineOverloaded."""
        with self._condition:
            if self._closing:
                raise EngineStopped(self._reason)
            num_open = sum(len(each.choices) for each in self._open)
            if num_open + len(request.choices) > self._max_open:
                raise EngineOverloaded(f"{num_open} requests are running or waiting; try again later")
            self._commands.append((self._engine.enqueue, request))
            self._open[request] = None
            self._condition.notify()

    def abort(self, request: Request) -> None:
        """Drop a request: its blocks are free before the next step begins."""
        with self._condition:
            if request in self._open:
                del self._open[request]
                self._commands.append((self._engine.abort, request))
                self._condition.notify()

    def stop(self) -> None:
        """Let the step that is under way end, then end every open request with EngineStopped. Blocks; idempotent."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join()

    def _main(self) -> None:
        try:
            while self._wait_for_work():
                self._step()
        except BaseException as error:  # our own bug: nobody may be left waiting for ever
            self._say_why(error)
        with self._condition:  # from here on nothing can be submitted, and nobody's abort finds anything
            self._closing = True
            left, self._open = list(self._open), {}
            commands, self._commands = self._commands, deque()
        try:
            for command, request in commands:
                command(request)
            for request in left:
                self._engine.abort(request)
        except BaseException as error:
            self._say_why(error)
        self._deliver([Output(request, error=EngineStopped(self._reason), is_last=True) for request in left])

    def _say_why(self, error: BaseException) -> None:
        logger.error("the engine's thread died", exc_info=error)
        self._reason = f"the engine's thread died: {type(error).__name__}: {error}"

    def _wait_for_work(self) -> bool:
        """Take the commands that have come; an idle engine waits for one, and then a little for company."""
        with self._condition:
            if not self._engine.has_work:
                self._condition.wait_for(lambda: self._closing or self._commands)
                self._condition.wait_for(
                    lambda: self._closing or len(self._commands) >= self._max_batch_size, timeout=self._max_wait_s
                )
            commands, self._commands = self._commands, deque()
            closing = self._closing
        for command, request in commands:
            command(request)
        return not closing

    def _step(self) -> None:
        try:
            outputs = self._engine.step()
        except StepFailed as error:
            logger.exception("a step failed; the requests that were running end with the error")
            outputs = self._engine.fail_running(error)
        with self._condition:
            for output in outputs:
                if output.is_last:
                    self._open.pop(output.request, None)
        if outputs:
            self._deliver(outputs)
