"""Chooses the next tokens of a whole batch, whatever mixture the requests ask for, by one call of the operations."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from engine.errors import EngineError, InvalidRequest, LogitsNotFinite
from engine.grammar.masks import Mask
from engine.per_request import PerRequest
from engine.plan import Sample
from engine.request import Request
from engine.sampling.logprobs import as_token_logprobs
from engine.sampling.randomness import uniforms
from engine.sampling.recipe import Recipe
from engine.types import TokenLogprobs
from kernels.sampling import (
    NOTHING_LEFT,
    RowChoices,
    RowMasks,
    RowPenalties,
    SamplingOperations,
    SparseRows,
)

_Entries: TypeAlias = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]
_NO_ENTRIES: _Entries = (np.zeros(0, np.int32), np.zeros(0, np.float32))


class Sampler:
    """Remembers each request's recipe and token counts until the request is finished."""

    def __init__(self, operations: SamplingOperations) -> None:
        self._operations = operations
        self._recipes = PerRequest(Recipe)

    def choose(
        self, logits: torch.Tensor, requests: Sequence[Request], masks: Mapping[int, Mask] | None = None
    ) -> list[Sample | EngineError]:
        """logits [R, V] float32 -> R tokens, each to follow its request's `token_ids`. masks: of rows with a grammar.

        An error (LogitsNotFinite, InvalidRequest when nothing may follow) is its row's alone.
        """
        masks = masks or {}
        recipes = [self._recipes.of(request) for request in requests]
        if not masks and all(recipe.is_plain for recipe in recipes):
            token_ids = self._operations.argmax(logits)
        else:
            token_ids = self._operations.choose(logits, _choices(requests, recipes, masks))
        logprobs = self._logprobs(logits, token_ids, recipes)
        return [
            Sample(token_id, logprobs.get(row)) if token_id >= 0 else _error(token_id, request, recipe, row in masks)
            for row, (token_id, request, recipe) in enumerate(zip(token_ids, requests, recipes, strict=True))
        ]

    def _logprobs(
        self, logits: torch.Tensor, token_ids: list[int], recipes: Sequence[Recipe]
    ) -> dict[int, TokenLogprobs]:
        """Of the model's own distribution, for the rows that want them."""
        wanted = {
            row: recipe.num_logprobs
            for row, recipe in enumerate(recipes)
            if recipe.num_logprobs is not None and token_ids[row] >= 0
        }
        if not wanted:
            return {}
        rows = list(wanted)
        part = logits if len(rows) == len(logits) else logits[rows]
        chosen = [token_ids[row] for row in rows]
        num_top = min(max(wanted.values()), logits.shape[1])
        found = self._operations.logprobs(part, chosen, num_top)
        return dict(zip(rows, as_token_logprobs(chosen, found, list(wanted.values())), strict=True))


def _choices(requests: Sequence[Request], recipes: Sequence[Recipe], masks: Mapping[int, Mask]) -> RowChoices:
    sampling = [recipe.sampling for recipe in recipes]
    seeds = np.array([recipe.seed for recipe in recipes], np.uint64)
    positions = np.array([len(request.token_ids) for request in requests], np.uint64)
    biases = [recipe.bias or _NO_ENTRIES for recipe in recipes]
    return RowChoices(
        temperature=_floats([recipe.temperature for recipe in recipes]),
        top_k=np.array([params.top_k for params in sampling], np.int32),
        top_p=_floats([params.top_p for params in sampling]),
        min_p=_floats([params.min_p for params in sampling]),
        uniform=uniforms(seeds, positions),
        masks=_masks(masks, len(recipes)) if masks else None,
        bias=_sparse(biases) if any(recipe.bias for recipe in recipes) else None,
        penalties=_penalties(recipes) if any(recipe.counts for recipe in recipes) else None,
    )


def _masks(masks: Mapping[int, Mask], num_rows: int) -> RowMasks:
    index = np.full(num_rows, -1, np.int32)
    index[list(masks)] = np.arange(len(masks))
    return RowMasks(index, np.stack(list(masks.values())))


def _penalties(recipes: Sequence[Recipe]) -> RowPenalties:
    sampling = [recipe.sampling for recipe in recipes]
    return RowPenalties(
        counts=_sparse([recipe.counts.update() if recipe.counts else _NO_ENTRIES for recipe in recipes]),
        repetition=_floats([params.repetition_penalty for params in sampling]),
        frequency=_floats([params.frequency_penalty for params in sampling]),
        presence=_floats([params.presence_penalty for params in sampling]),
    )


def _sparse(entries: Sequence[_Entries]) -> SparseRows:
    token_ids, values = zip(*entries, strict=True)
    offsets = np.cumsum([0, *map(len, token_ids)]).astype(np.int32)
    return SparseRows(offsets, np.concatenate(token_ids), np.concatenate(values))


def _floats(values: list[float]) -> npt.NDArray[np.float32]:
    return np.array(values, np.float32)


def _error(token_id: int, request: Request, recipe: Recipe, has_grammar: bool) -> EngineError:
    if has_grammar and request.matcher is not None and request.matcher.error:
        reason = request.matcher.error.splitlines()[0]
        return InvalidRequest(f"the grammar can't be followed any further: {reason}", "grammar")
    if token_id == NOTHING_LEFT and recipe.bias is not None:
        return InvalidRequest("logit_bias bans every token that could follow", "logit_bias")
    if token_id == NOTHING_LEFT and has_grammar:
        return InvalidRequest("the grammar allows no token that could follow", "grammar")
    return LogitsNotFinite()  # a model that gives every token the probability 0 is as broken
