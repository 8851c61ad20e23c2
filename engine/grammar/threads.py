"""Native work that nothing can interrupt, on threads that can be left behind. Knows no grammar.

llguidance can't be stopped from outside: a grammar that its limits don't bound keeps its thread busy for ever. Such a
thread is left alone with a core, and whoever waited goes on. The threads are daemons, so the process's end does not
wait for them either, and have large stacks: llguidance recurses as deep as a grammar is nested, and a full stack would
end the process.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from engine.errors import EngineOverloaded

logger = logging.getLogger(__name__)

Outcome = TypeVar("Outcome")
STACK_BYTES = 64 * 2**20  # reserved, not used, until a grammar needs it
MAX_LEFT_BEHIND = 4  # threads in the whole process: each takes a core from the model

_lock = threading.Lock()
_left_behind: list[threading.Thread] = []


def start_thread(work: Callable[[], object], name: str) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    with _lock:  # the size is the process's: it counts for whichever thread starts next
        usual = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
    return thread


def leave_behind(thread: threading.Thread, what: str) -> None:
    """Nobody waits for it any more."""
    logger.warning(
        "%s takes too long; its thread is left behind, and may keep a core busy until the process ends", what
    )
    with _lock:
        _left_behind.append(thread)


def num_left_behind() -> int:
    """How many threads that were left behind are still at work."""
    with _lock:
        _left_behind[:] = [thread for thread in _left_behind if thread.is_alive()]
        return len(_left_behind)


class BoundedCalls:
    """At most `most` calls at a time, none of which takes its caller longer than `seconds`. Thread-safe."""

    def __init__(self, what: str, *, seconds: float, most: int) -> None:
        self._what = what
        self._seconds = seconds
        self._free = threading.Semaphore(most)

    def call(self, work: Callable[[], Outcome]) -> Outcome:
        """What `work` returns or raises. TimeoutError if it takes too long: it then goes on, and keeps its place.

        Raises EngineOverloaded when no place gets free in time, and at once when too many threads were left behind.
        """
        if num_left_behind() >= MAX_LEFT_BEHIND or not self._free.acquire(timeout=self._seconds):
            raise EngineOverloaded(f"{self._what}: too many of them are at work; try again later")
        future: Future[Outcome] = Future()

        def run() -> None:
            try:
                result = work()
            except BaseException as error:  # whatever it is, the caller gets it
                self._free.release()
                future.set_exception(error)
            else:
                self._free.release()
                future.set_result(result)

        thread = start_thread(run, self._what)
        try:
            return future.result(self._seconds)
        except TimeoutError:
            if not future.done():
                leave_behind(thread, self._what)
            raise
