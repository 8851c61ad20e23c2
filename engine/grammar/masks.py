"""Token masks of a step's rows, made while the model runs. Knows no logits.

A mask takes 0.05 to some ms on one core, without the GIL: done beside the forward pass it costs almost no time.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.int32]  # [ceil(V / 32)], token 0 in the lowest bit of the first word


class _MakesMasks(Protocol):
    def fill_mask(self, row: Mask) -> None: ...


class MaskJob:
    """Masks under way."""

    def __init__(self, future: Future[dict[int, Mask]] | None) -> None:
        self._future = future

    def collect(self) -> dict[int, Mask]:
        """The mask of each row that has a matcher; waits until they are done."""
        return self._future.result() if self._future is not None else {}


class MaskWorker:
    """One thread that makes masks of `vocab_size` bits. It starts with the first job, and ends with the process."""

    def __init__(self, vocab_size: int) -> None:
        self._num_words = (vocab_size + 31) // 32
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="masks")

    def begin(self, matchers: Mapping[int, _MakesMasks]) -> MaskJob:
        """matchers: by row, of rows with a grammar. They may not be touched until the job is collected."""
        if not matchers:
            return MaskJob(None)
        return MaskJob(self._pool.submit(self._make, matchers))

    def _make(self, matchers: Mapping[int, _MakesMasks]) -> dict[int, Mask]:
        masks = np.zeros((len(matchers), self._num_words), np.int32)
        for place, matcher in enumerate(matchers.values()):
            matcher.fill_mask(masks[place])
        return dict(zip(matchers, masks, strict=True))
