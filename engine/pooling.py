"""Embeddings from the hidden states of a prompt. Knows chunks, and no scheduler."""

import math

import numpy as np
import numpy.typing as npt
import torch

from engine.errors import EngineError, LogitsNotFinite
from engine.per_request import PerRequest
from engine.request import Request


class Pooler:
    """Gathers a prompt's hidden states, chunk by chunk, into one vector of length 1."""

    def __init__(self) -> None:
        self._sums: PerRequest[_RunningSum] = PerRequest(lambda request: _RunningSum())

    def push(self, request: Request, start: int, hidden: torch.Tensor) -> tuple[float, ...] | EngineError | None:
        """hidden [n, C] of the prompt's tokens from `start` on, after the last norm -> [C] with its last chunk.

        "last": of the last token alone. "mean": of all tokens; a prompt that begins anew (after a preemption) counts
        anew.
        """
        is_complete = start + len(hidden) == request.num_prompt
        if request.params.pooling == "mean":
            total = self._sums.of(request)
            total.add(start, hidden.float().cpu().numpy())
            return _normalised(total.value) if is_complete else None
        return _normalised(hidden[-1].double().cpu().numpy()) if is_complete else None


class _RunningSum:
    """Adds rows in their order, one after another, so the cut into chunks changes no bit."""

    def __init__(self) -> None:
        self.value: npt.NDArray[np.float64] = np.zeros(0)

    def add(self, start: int, rows: npt.NDArray[np.float32]) -> None:
        before = self.value[None] if start else np.zeros((1, rows.shape[1]))
        self.value = np.add.reduce(np.concatenate([before, rows]), axis=0)  # over rows numpy adds in order


def _normalised(vector: npt.NDArray[np.float64]) -> tuple[float, ...] | EngineError:
    length = float(np.linalg.norm(vector))
    if not math.isfinite(length):
        return LogitsNotFinite()
    return tuple((vector / (length or 1.0)).astype(np.float32).tolist())
