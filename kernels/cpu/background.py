"""Calls carried out by a thread of their own, in their order, while whoever makes them goes on. Knows no kernel."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

Call = TypeVar("Call")


def begin(run: Callable[[Call], None], calls: Sequence[Call]) -> Future[None]:
    """Carry out the calls, which are all there is, one by one. The result raises what the first that fails raised."""

    def work() -> None:
        for call in calls:
            run(call)

    executor = ThreadPoolExecutor(1, thread_name_prefix="copying")
    future = executor.submit(work)
    executor.shutdown(wait=False)
    return future


class Background(Generic[Call]):
    """`run` gets whatever came in while it was busy, at once. The context's end waits for the last of it.

    Calls of more than `most_bytes` don't wait in line: then `add` waits. What `run` raises, the context's end raises.
    """

    def __init__(self, run: Callable[[Sequence[Call]], None], most_bytes: int) -> None:
        self._run = run
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._waiting: list[Call] = []
        self._num_bytes = 0  # of what waits
        self._ended = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="packing", daemon=True)

    def __enter__(self) -> "Background[Call]":
        self._thread.start()
        return self

    def add(self, call: Call, num_bytes: int) -> None:
        """num_bytes: what it keeps in memory until it is done."""
        with self._changed:
            self._waiting.append(call)
            self._num_bytes += num_bytes
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._num_bytes <= self._most_bytes)

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error

    def _work(self) -> None:
        while calls := self._take():
            try:
                if self._error is None:
                    self._run(calls)
            except Exception as error:
                self._error = error

    def _take(self) -> list[Call]:
        """All that waits, as soon as there is something; [] at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            calls, self._waiting, self._num_bytes = self._waiting, [], 0
            self._changed.notify_all()
            return calls
