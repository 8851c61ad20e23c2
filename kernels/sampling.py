"""Logits to tokens, as one interface with an implementation for each kind of machine. Knows rows, and no sequences.

Every filter is a cut through a row's tokens in the order of falling probability (among equals, of rising id), so what
is left of top-k and top-p is a prefix of that order, and one uniform number draws from it.
"""

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Integers: TypeAlias = npt.NDArray[np.signedinteger[Any]]

# In the place of a token id:
NOT_FINITE = -1  # the row holds NaN or +infinity: whatever made it is broken
NOTHING_LEFT = -2  # every token of the row has probability 0


@dataclass(slots=True, frozen=True)
class SparseRows:
    """A number for some tokens of each row: row r has entries offsets[r] to offsets[r + 1]; a token occurs once in it.

    offsets [R + 1], token_ids [E] int32; values [E] float32.
    """

    offsets: Integers
    token_ids: Integers
    values: Floats


@dataclass(slots=True, frozen=True)
class RowMasks:
    """Which tokens a grammar allows. bits [M, ceil(V / 32)] int32, token 0 in the lowest bit of the first word.

    index [R] int32: the line of `bits` that is row r's, or -1 for a row without a grammar.
    """

    index: Integers
    bits: Integers


@dataclass(slots=True, frozen=True)
class RowPenalties:
    """counts: of the tokens in a row's prompt (0) and answer (how often). The others [R] float32.

    Of a token that `counts` has, a positive logit is divided by `repetition` and a negative one multiplied (Keskar et
    al. 2019, arXiv:1909.05858); then `frequency` times its count and, if that isn't 0, `presence` are subtracted
    (OpenAI's API reference).
    """

    counts: SparseRows
    repetition: Floats
    frequency: Floats
    presence: Floats


@dataclass(slots=True, frozen=True)
class RowChoices:
    """How each row chooses. First masks, bias and penalties, then temperature, top-k, top-p, min-p, in this order.

    temperature [R] float32, 0 for the most likely token; top_k [R] int32, 0 for all; top_p, min_p [R] float32, 1 and 0
    for all; uniform [R] float64 in [0, 1): where in its distribution a row draws.
    """

    temperature: Floats
    top_k: Integers
    top_p: Floats
    min_p: Floats
    uniform: Floats
    masks: RowMasks | None = None
    bias: SparseRows | None = None
    penalties: RowPenalties | None = None


@dataclass(slots=True, frozen=True)
class RowLogprobs:
    """Natural. chosen [R] float32; top_ids [R, N] int32 and top [R, N] float32, in falling order."""

    chosen: Floats
    top_ids: Integers
    top: Floats


class SamplingOperations(Protocol):
    """logits [R, V] float32, contiguous, on the implementation's device, left as they are; R >= 1.

    No row's result depends on the other rows, bit for bit on a CPU.
    """

    def argmax(self, logits: torch.Tensor) -> list[int]:
        """The most likely token of each row (the first among equals), NOT_FINITE or NOTHING_LEFT."""
        ...

    def choose(self, logits: torch.Tensor, rows: RowChoices) -> list[int]:
        """A token of each row, NOT_FINITE or NOTHING_LEFT."""
        ...

    def logprobs(self, logits: torch.Tensor, token_ids: list[int], num_top: int) -> RowLogprobs:
        """Of token_ids [R] and of the num_top <= V most likely tokens; NaN where the row is not finite."""
        ...
