"""The torch twin of the sampling operations: runs on any device, and is what faster kernels are tested against.

One uniform number a row and the inverse of its distribution function: on a CPU noise for a whole vocabulary costs ten
times as much. Sums run over chunks of fixed size: torch adds up a lone row otherwise than one of many.
"""

import numpy as np
import torch

from kernels.sampling import NOT_FINITE, NOTHING_LEFT, RowChoices, RowLogprobs, RowMasks, RowPenalties, SparseRows

CHUNK = 256  # tokens whose weights are added up on their own


class ReferenceSampling:
    """Implements `SamplingOperations` in plain torch, for logits on any device."""

    def argmax(self, logits: torch.Tensor) -> list[int]:
        peak = logits.amax(dim=1)  # NaN if any logit is
        return _marked(logits.argmax(dim=1), peak, peak).tolist()

    def choose(self, logits: torch.Tensor, rows: RowChoices) -> list[int]:
        shaped = _shape(logits, rows)
        peak = shaped.amax(dim=1)
        ids = shaped.argmax(dim=1)
        drawn = np.flatnonzero(rows.temperature > 0)
        if len(drawn):
            index = torch.from_numpy(drawn).to(logits.device)
            temperature = _column(rows.temperature[drawn], logits.device)
            scaled = (shaped[index] - peak[index, None]) / temperature  # at most 0: exp can't overflow
            weights = _filter(scaled.exp(), rows, drawn)
            ids[index] = _invert(weights, torch.from_numpy(rows.uniform[drawn]).to(logits.device))
        return _marked(ids, logits.amax(dim=1), peak).tolist()

    def logprobs(self, logits: torch.Tensor, token_ids: list[int], num_top: int) -> RowLogprobs:
        peak = logits.amax(dim=1, keepdim=True)
        total = _chunk_sums((logits - peak).exp()).cumsum(dim=1)[:, -1:]
        constant = peak.double() + total.log()
        chosen = logits.gather(1, torch.tensor(token_ids, device=logits.device)[:, None])
        top, top_ids = logits.topk(num_top, dim=1)
        return RowLogprobs(
            (chosen - constant)[:, 0].float().cpu().numpy(),
            top_ids.int().cpu().numpy(),
            (top - constant).float().cpu().numpy(),
        )


def _marked(ids: torch.Tensor, model_peak: torch.Tensor, peak: torch.Tensor) -> torch.Tensor:
    """ids [R], with NOT_FINITE and NOTHING_LEFT where they apply; peaks [R] before and after shaping."""
    ids = ids.masked_fill(peak == -torch.inf, NOTHING_LEFT)
    is_finite = (model_peak < torch.inf) & (peak < torch.inf)  # not so of NaN
    return ids.masked_fill(~is_finite, NOT_FINITE)


def _shape(logits: torch.Tensor, rows: RowChoices) -> torch.Tensor:
    """A copy of the logits with masks, bias and penalties; the logits themselves if there are none."""
    if rows.masks is None and rows.bias is None and rows.penalties is None:
        return logits
    shaped = logits.clone()
    if rows.masks is not None:
        _forbid(shaped, rows.masks)
    if rows.bias is not None:
        row, token = _coordinates(rows.bias, logits.device)
        shaped[row, token] += torch.from_numpy(rows.bias.values).to(logits.device)
    if rows.penalties is not None:
        _penalise(shaped, rows.penalties)
    return shaped


def _forbid(logits: torch.Tensor, masks: RowMasks) -> None:
    masked = np.flatnonzero(masks.index >= 0)
    bits = np.ascontiguousarray(masks.bits[masks.index[masked]], np.int32).view(np.uint8)
    allowed = np.unpackbits(bits, axis=1, count=logits.shape[1], bitorder="little").astype(bool)
    index = torch.from_numpy(masked).to(logits.device)
    forbidden = torch.from_numpy(~allowed).to(logits.device)
    logits[index] = logits[index].masked_fill(forbidden, -torch.inf)


def _penalise(logits: torch.Tensor, penalties: RowPenalties) -> None:
    row, token = _coordinates(penalties.counts, logits.device)
    counts = torch.from_numpy(penalties.counts.values).to(logits.device)
    repetition, frequency, presence = (
        torch.from_numpy(column).to(logits.device)[row]
        for column in (penalties.repetition, penalties.frequency, penalties.presence)
    )
    seen = logits[row, token]
    seen = torch.where(seen > 0, seen / repetition, seen * repetition)
    logits[row, token] = seen - frequency * counts - presence * (counts > 0)


def _coordinates(sparse: SparseRows, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and token of each entry, [E] int64."""
    row = np.repeat(np.arange(len(sparse.offsets) - 1), np.diff(sparse.offsets))
    return torch.from_numpy(row).to(device), torch.from_numpy(sparse.token_ids.astype(np.int64)).to(device)


def _filter(weights: torch.Tensor, rows: RowChoices, drawn: np.ndarray) -> torch.Tensor:
    """weights [n, V], at most 1, of the rows `drawn`: with 0 for what top-k, top-p and min-p drop."""
    vocab_size = weights.shape[1]
    top_k = np.where(rows.top_k[drawn] > 0, np.minimum(rows.top_k[drawn], vocab_size), vocab_size)
    top_p = rows.top_p[drawn]
    if len(cut := np.flatnonzero((top_k < vocab_size) | (top_p < 1))):
        index = torch.from_numpy(cut).to(weights.device)
        k = torch.from_numpy(top_k[cut].astype(np.int64)).to(weights.device)
        weights[index] = _keep_head(weights[index], k, torch.from_numpy(top_p[cut]).to(weights.device).double())
    if (rows.min_p[drawn] > 0).any():
        weights = weights.masked_fill(weights < _column(rows.min_p[drawn], weights.device), 0.0)
    return weights


def _keep_head(weights: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, num_sorted: int = 128) -> torch.Tensor:
    """weights [n, V], 0 beyond the top_k [n] largest and the smallest set that reaches top_p [n] of their sum.

    A full sort of a vocabulary costs 5 ms a row, the first 128 of it 0.1 ms: rows that need more come again.
    """
    vocab_size = weights.shape[1]
    num_sorted = min(num_sorted, vocab_size)
    rank = torch.arange(num_sorted, device=weights.device)
    values = weights.topk(num_sorted, dim=1).values
    ends = torch.where(rank < top_k[:, None], values, 0.0).double().cumsum(dim=1)
    whole = _chunk_sums(weights).cumsum(dim=1)[:, -1]
    # Top-p counts from the mass that top-k leaves, which isn't known before the k-th largest is.
    goal = top_p * torch.where(top_k <= num_sorted, ends[:, -1], torch.where(top_k < vocab_size, torch.inf, whole))
    num_kept = torch.minimum(torch.where(top_p < 1, (ends < goal[:, None]).sum(dim=1) + 1, top_k), top_k)
    kept = _keep_largest(weights, values.gather(1, (num_kept.clamp(max=num_sorted) - 1)[:, None]), num_kept)
    missing = (num_kept > num_sorted).nonzero()[:, 0]
    if len(missing):
        kept[missing] = _keep_head(weights[missing], top_k[missing], top_p[missing], 16 * num_sorted)
    return kept


def _keep_largest(weights: torch.Tensor, smallest: torch.Tensor, num_kept: torch.Tensor) -> torch.Tensor:
    """weights [n, V] with 0 in all but num_kept [n] places; `smallest` [n, 1] is the value of the last one kept."""
    larger, equal = weights > smallest, weights == smallest
    num_equal = num_kept[:, None] - larger.sum(dim=1, keepdim=True)
    if (equal.sum(dim=1, keepdim=True) > num_equal).any():  # rarely: counting through a vocabulary takes long
        equal &= equal.cumsum(dim=1) <= num_equal
    return torch.where(larger | equal, weights, 0.0)


def _invert(weights: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """weights [n, V], uniform [n] float64 -> [n] int64, where the cumulative weight passes `uniform` of the sum.

    In two levels, chunks and then inside one: a float64 cumulative sum over V costs ten times as much.
    """
    sums = _chunk_sums(weights)
    ends = sums.cumsum(dim=1)  # [n, chunks]
    target = uniform * ends[:, -1]
    chunk = _first_beyond(sums, ends, target)
    every = torch.arange(len(weights), device=weights.device)
    inside = _chunks(weights)[every, chunk].double()  # [n, CHUNK]
    place = _first_beyond(inside, inside.cumsum(dim=1), target - (ends - sums)[every, chunk])
    return chunk * CHUNK + place


def _first_beyond(weights: torch.Tensor, ends: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The first column whose cumulative weight exceeds target [n]; never one of weight 0, wherever rounding leads."""
    column = torch.searchsorted(ends, target[:, None], right=True)[:, 0]
    last = ((weights > 0) * torch.arange(1, weights.shape[1] + 1, device=weights.device)).amax(dim=1) - 1
    return torch.minimum(column, last).clamp(min=0)


def _chunks(weights: torch.Tensor) -> torch.Tensor:
    if weights.shape[1] % CHUNK:
        weights = torch.nn.functional.pad(weights, (0, -weights.shape[1] % CHUNK))
    return weights.view(len(weights), -1, CHUNK)


def _chunk_sums(weights: torch.Tensor) -> torch.Tensor:
    """[n, V] -> [n, chunks] float64."""
    return _chunks(weights).sum(dim=2).double()


def _column(values: np.ndarray, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(values).to(device)[:, None]
