"""Embeddings: the last token's or the mean of all, of length 1, whatever chunks a prompt comes in."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from engine.errors import LogitsNotFinite
from engine.pooling import Pooler
from engine.request import Request
from engine.types import GenerationRequest

HIDDEN = torch.randn(50, 24, generator=torch.Generator().manual_seed(0))


def make(pooling: Any) -> Request:
    params = GenerationRequest(request_id="r", prompt_token_ids=[1] * 50, pooling=pooling)
    return Request(params=params, token_ids=[1] * 50, num_prompt=50)


def in_chunks(pooler: Pooler, request: Request, size: int) -> Any:
    found = None
    for start in range(0, 50, size):
        assert found is None
        found = pooler.push(request, start, HIDDEN[start : start + size])
    return found


@pytest.mark.parametrize(("pooling", "vector"), [("last", HIDDEN[-1]), ("mean", HIDDEN.mean(0))])
def test_an_embedding_is_its_definition_and_has_length_one(pooling: str, vector: torch.Tensor) -> None:
    found = Pooler().push(make(pooling), 0, HIDDEN)
    assert isinstance(found, tuple)
    assert found == pytest.approx((vector / vector.norm()).tolist(), abs=1e-6)
    assert math.hypot(*found) == pytest.approx(1, abs=1e-6)
    assert found == tuple(np.array(found, np.float32).tolist())


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_chunks_change_no_bit(pooling: str) -> None:
    whole = in_chunks(Pooler(), make(pooling), 50)
    pooler = Pooler()
    for size in (1, 7, 16, 49):
        assert in_chunks(pooler, make(pooling), size) == whole


def test_a_prompt_that_begins_anew_is_counted_anew() -> None:
    pooler, request = Pooler(), make("mean")
    assert pooler.push(request, 0, HIDDEN[:30]) is None  # and then it is preempted
    other = make("mean")
    assert pooler.push(other, 0, HIDDEN[10:40]) is None
    assert in_chunks(pooler, request, 16) == in_chunks(Pooler(), make("mean"), 50)


def test_bfloat16_states_and_a_vector_of_zeros() -> None:
    assert Pooler().push(make("last"), 49, HIDDEN[-1:].bfloat16()) is not None
    assert Pooler().push(make("mean"), 0, torch.zeros(50, 3)) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_states_that_are_no_numbers_are_an_error(pooling: str) -> None:
    broken = HIDDEN.clone()
    broken[-1, 3] = math.nan
    assert isinstance(Pooler().push(make(pooling), 0, broken), LogitsNotFinite)
