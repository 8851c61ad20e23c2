"""Log probabilities in the form a client gets them, and those of a prompt's own tokens."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from engine.errors import EngineError, LogitsNotFinite
from engine.types import Logprob, TokenLogprobs
from kernels.sampling import RowLogprobs, SamplingOperations

LEAST = -9999.0  # in the place of minus infinity, which JSON doesn't have; OpenAI's choice
SLICE = 32  # rows of prompts whose logits are held at a time: 6 MB for a vocabulary of 49,152


def as_token_logprobs(token_ids: Sequence[int], found: RowLogprobs, num_top: Sequence[int]) -> list[TokenLogprobs]:
    """One for each row, with its own number of most likely tokens."""
    chosen = found.chosen.clip(LEAST).tolist()
    top_ids, top = found.top_ids.tolist(), found.top.clip(LEAST).tolist()
    return [
        TokenLogprobs(token_id, chosen[row], tuple(map(Logprob, top_ids[row][:count], top[row][:count])))
        for row, (token_id, count) in enumerate(zip(token_ids, num_top, strict=True))
    ]


def prompt_logprobs(
    hidden: torch.Tensor,
    targets: Sequence[int],
    num_top: int,
    logits_of: Callable[[torch.Tensor], torch.Tensor],
    operations: SamplingOperations,
) -> list[TokenLogprobs] | EngineError:
    """Of the tokens `targets` [n] that follow the rows of hidden [n, C].

    logits_of: [at most SLICE, C] -> [_, V] float32. Logits come in slices, so that a long prompt takes no memory.
    """
    result: list[TokenLogprobs] = []
    for start in range(0, len(targets), SLICE):
        part = list(targets[start : start + SLICE])
        logits = logits_of(hidden[start : start + len(part)])
        top = min(num_top, logits.shape[1])
        found = operations.logprobs(logits, part, top)
        if np.isnan(found.chosen).any():
            return LogitsNotFinite()
        result += as_token_logprobs(part, found, [top] * len(part))
    return result
