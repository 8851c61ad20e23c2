"""Token masks of a step's rows, made while the model runs. Knows no logits.

A mask takes 0.05 to some ms on one core, without the GIL: done beside the forward pass it costs almost no time. One
that takes seconds fails its own row alone.
"""

import logging
import threading
import time
import weakref
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.grammar.threads import leave_behind, start_thread

logger = logging.getLogger(__name__)

Mask = npt.NDArray[np.int32]  # [ceil(V / 32)], token 0 in the lowest bit of the first word
MASK_SECONDS = 5.0  # llguidance's limits stop a mask after 0.1 s, if they stop it at all
_TOO_LONG = "its mask takes too long"


class _MakesMasks(Protocol):
    def fill_mask(self, row: Mask) -> None: ...

    def give_up(self, why: str) -> None: ...


class _Batch:
    """Masks of some rows, made one after the other on a thread that may get stuck."""

    def __init__(self, matchers: Mapping[int, _MakesMasks], num_words: int) -> None:
        self.matchers = matchers
        self.masks: dict[int, Mask] = {}
        self._num_words = num_words
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._is_left = False
        self._since = time.monotonic()  # when the row under way was begun

    def make(self) -> None:
        masks = np.zeros((len(self.matchers), self._num_words), np.int32)
        for mask, (row, matcher) in zip(masks, self.matchers.items(), strict=True):
            self._since = time.monotonic()
            try:
                matcher.fill_mask(mask)
            except BaseException as error:  # also a panic of llguidance, which is no Exception
                logger.exception("a mask could not be made")
                matcher.give_up(f"{type(error).__name__}: {error}")
                mask[:] = 0
            with self._lock:
                if self._is_left:  # the other rows are somebody else's now
                    return
                self.masks[row] = mask
        self._finished.set()

    def wait(self, seconds: float) -> dict[int, _MakesMasks]:
        """Until all masks are there, or one has taken `seconds`: then no more come, and these are without."""
        while not self._finished.wait(max(0.0, self._since + seconds - time.monotonic())):
            with self._lock:
                if time.monotonic() - self._since < seconds or len(self.masks) == len(self.matchers):
                    continue
                self._is_left = True
                return {row: matcher for row, matcher in self.matchers.items() if row not in self.masks}
        return {}


class MaskWorker:
    """One thread that makes masks of `vocab_size` bits. It starts with the first job, and ends with its owner."""

    def __init__(self, vocab_size: int, seconds: float = MASK_SECONDS) -> None:
        self.num_words = (vocab_size + 31) // 32
        self.seconds = seconds
        self._thread: threading.Thread | None = None
        self._inbox: SimpleQueue[_Batch | None] = SimpleQueue()

    def begin(self, matchers: Mapping[int, _MakesMasks]) -> "MaskJob":
        """matchers: by row, of rows with a grammar. They may not be touched until the job is collected."""
        batch = _Batch(matchers, self.num_words)
        if matchers:
            if self._thread is None:
                self._start()
            self._inbox.put(batch)
        return MaskJob(self, batch)

    def leave_thread(self) -> None:
        """It is stuck; the next job gets a new one."""
        assert self._thread is not None, "a job was under way"
        leave_behind(self._thread, "a token mask")
        self._inbox.put(None)  # should it ever come back
        self._thread = None

    def _start(self) -> None:
        inbox = self._inbox = SimpleQueue()
        self._thread = start_thread(lambda: _work(inbox), "masks")
        weakref.finalize(self, inbox.put, None).atexit = False


class MaskJob:
    """Masks under way."""

    def __init__(self, worker: MaskWorker, batch: _Batch) -> None:
        self._worker = worker
        self._batch = batch

    def collect(self) -> dict[int, Mask]:
        """The mask of each row that has a matcher; waits until they are done.

        A matcher that takes longer than it may is told to give up, and nothing is allowed in its row. The others then
        get a thread each, and the same time again: so a step's masks take no longer than twice that, whatever is stuck.
        """
        batch, seconds = self._batch, self._worker.seconds
        if not batch.matchers:
            return {}
        missing = batch.wait(seconds)
        if missing:
            self._worker.leave_thread()
            row, stuck = next(iter(missing.items()))
            batch.masks[row] = self._given_up(stuck)
            del missing[row]
            self._make_apart(missing)
        return {row: batch.masks[row] for row in batch.matchers}

    def _make_apart(self, matchers: Mapping[int, _MakesMasks]) -> None:
        parts = [_Batch({row: matcher}, self._worker.num_words) for row, matcher in matchers.items()]
        threads = [start_thread(part.make, "masks") for part in parts]
        for part, thread in zip(parts, threads, strict=True):
            for row, matcher in part.wait(self._worker.seconds).items():
                leave_behind(thread, "a token mask")
                part.masks[row] = self._given_up(matcher)
            self._batch.masks |= part.masks

    def _given_up(self, matcher: _MakesMasks) -> Mask:
        """A mask of its own: the thread left behind may still write into the other."""
        matcher.give_up(_TOO_LONG)
        return np.zeros(self._worker.num_words, np.int32)


def _work(inbox: "SimpleQueue[_Batch | None]") -> None:
    while (batch := inbox.get()) is not None:
        batch.make()
        del batch  # an idle thread keeps no matcher alive
