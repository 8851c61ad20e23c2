"""Logits to token ids for a whole batch: greedy, temperature, top-k, top-p, seeds. Knows no sequences, only rows.

Randomness is counter-based: a seeded row's uniform number is a hash of (seed, position), so neither its neighbours nor
a preemption can change it. A row needs one uniform number: the token is found by inverting the distribution function.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

MIN_TEMPERATURE = 1e-5  # below it the distribution is a point: greedy
MIN_TOP_P = 1e-6
_CHUNK = 256  # of the vocabulary, for the two-level distribution function


@dataclass(slots=True, frozen=True)
class RowSampling:
    """How one row chooses. top_k 0 and top_p 1 are off; position counts the sequence's tokens so far."""

    temperature: float
    top_k: int
    top_p: float
    seed: int | None
    position: int

    @property
    def is_greedy(self) -> bool:
        return self.temperature < MIN_TEMPERATURE or self.top_p < MIN_TOP_P or self.top_k == 1


class Sampler:
    """`choose` maps logits [R, V] float32 to R token ids. Unseeded rows draw from the operating system's entropy."""

    def __init__(self) -> None:
        self._unseeded = np.random.default_rng()

    def choose(self, logits: torch.Tensor, rows: Sequence[RowSampling]) -> list[int]:
        """Temperature first, then top-k, then top-p over what is left (the smallest set that reaches it)."""
        drawn = [i for i, row in enumerate(rows) if not row.is_greedy]
        if not drawn:
            return logits.argmax(dim=1).tolist()
        plain = [i for i in drawn if not 0 < rows[i].top_k < logits.shape[1] and rows[i].top_p >= 1]
        filtered = sorted(set(drawn) - set(plain))
        ids = logits.argmax(dim=1) if len(drawn) < len(rows) else logits.new_empty(len(rows), dtype=torch.long)
        for members, draw in ((plain, _draw_plain), (filtered, _draw_filtered)):
            if members:
                chosen = [rows[i] for i in members]
                part = logits if len(members) == len(rows) else logits[members]
                temperature = torch.tensor([row.temperature for row in chosen], device=logits.device)
                scaled = (part - part.amax(dim=1, keepdim=True)) / temperature[:, None]  # at most 0: exp can't overflow
                uniform = torch.from_numpy(self._uniforms(chosen)).to(logits.device)
                ids[members] = draw(scaled, uniform, chosen)
        return ids.tolist()

    def _uniforms(self, rows: Sequence[RowSampling]) -> npt.NDArray[np.float64]:
        values = self._unseeded.random(len(rows))
        seeded = [i for i, row in enumerate(rows) if row.seed is not None]
        if seeded:
            seeds = np.array([(rows[i].seed or 0) & 0xFFFFFFFFFFFFFFFF for i in seeded], np.uint64)
            values[seeded] = uniforms(seeds, np.array([rows[i].position for i in seeded], np.uint64))
        return values


def uniforms(seeds: npt.NDArray[np.uint64], positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """One number in [0, 1) for each (seed, position), 53 bits: SplitMix64's finaliser over both.

    Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
    """
    mixed = _finalise(_finalise(seeds + np.uint64(0x9E3779B97F4A7C15)) + positions * np.uint64(0x9E3779B97F4A7C15))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _finalise(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _draw_plain(scaled: torch.Tensor, uniform: torch.Tensor, rows: Sequence[RowSampling]) -> torch.Tensor:
    """The whole vocabulary, unsorted. scaled [R, V] <= 0, uniform [R] float64 -> ids [R].

    Two levels, sums of chunks and then inside one: a float64 cumulative sum over V costs ten times as much.
    """
    num_rows, vocab_size = scaled.shape
    weights = torch.nn.functional.pad(scaled.exp(), (0, -vocab_size % _CHUNK)).view(num_rows, -1, _CHUNK)
    chunk_ends = weights.sum(dim=2).double().cumsum(dim=1)  # [R, chunks]
    target = uniform * chunk_ends[:, -1]
    chunk = torch.searchsorted(chunk_ends, target[:, None], right=True)[:, 0].clamp(max=chunk_ends.shape[1] - 1)
    every = torch.arange(num_rows, device=scaled.device)
    before = torch.where(chunk > 0, chunk_ends[every, (chunk - 1).clamp(min=0)], 0.0)
    inside = weights[every, chunk].double()  # [R, _CHUNK]
    return chunk * _CHUNK + _invert(inside, target - before)


def _draw_filtered(
    scaled: torch.Tensor, uniform: torch.Tensor, rows: Sequence[RowSampling], num_candidates: int = 128
) -> torch.Tensor:
    """Top-k and top-p over the first candidates in falling order; rows that need more are drawn among 16 times more.

    A full sort of a vocabulary costs 5 ms a row, the first 128 of it 0.1 ms.
    """
    vocab_size = scaled.shape[1]
    top_k = torch.tensor(
        [row.top_k if 0 < row.top_k < vocab_size else vocab_size for row in rows], device=scaled.device
    )
    top_p = torch.tensor([row.top_p for row in rows], dtype=torch.float64, device=scaled.device)
    total = scaled.exp().view(len(rows), 1, -1).sum(dim=2, dtype=torch.float64)[:, 0]
    num_candidates = min(num_candidates, vocab_size)
    values, ids = scaled.topk(num_candidates, dim=1)
    weights = values.double().exp()
    chosen = _draw_sorted(weights, ids, uniform, top_k, top_p, total)
    # Top-p counts from the mass that top-k leaves, which isn't known before the k-th candidate is.
    reaches_top_p = (top_k == vocab_size) & (weights.sum(dim=1) >= top_p * total)
    enough = (top_k <= num_candidates) | reaches_top_p
    missing = (~enough).nonzero()[:, 0]
    if num_candidates < vocab_size and len(missing):
        again = [rows[i] for i in missing.tolist()]
        chosen[missing] = _draw_filtered(scaled[missing], uniform[missing], again, 16 * num_candidates)
    return chosen


def _draw_sorted(
    weights: torch.Tensor,
    ids: torch.Tensor,
    uniform: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    total: torch.Tensor,
) -> torch.Tensor:
    """weights [R, C] float64 falling, unnormalised; total [R], of use without top-k, is the whole vocabulary's."""
    rank = torch.arange(weights.shape[1], device=weights.device)
    weights = torch.where(rank < top_k[:, None], weights, 0.0)
    mass = torch.where(top_k <= weights.shape[1], weights.sum(dim=1), total)
    before = weights.cumsum(dim=1) - weights
    weights = torch.where((before < (top_p * mass)[:, None]) | (rank == 0), weights, 0.0)
    column = _invert(weights, uniform * weights.sum(dim=1))
    return ids.gather(1, column[:, None])[:, 0]


def _invert(weights: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The first column whose cumulative weight exceeds target [R]; never one of weight 0. weights [R, C] float64."""
    ends = weights.cumsum(dim=1)
    column = torch.searchsorted(ends, target[:, None], right=True)[:, 0]
    positive = (weights > 0) * torch.arange(1, weights.shape[1] + 1, device=weights.device)
    return torch.minimum(column, positive.amax(dim=1) - 1).clamp(min=0)  # rounding can push the target past the end
