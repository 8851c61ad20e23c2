"""Every family against transformers' own model of it, on small random weights: logit by logit, token by token."""

from pathlib import Path
from typing import Any

import pytest
import torch
from families import FAMILIES, ModelWithCache, Tokens, make_family

from engine.loader.checkpoint import load_checkpoint
from kernels.reference import ReferenceOperations

TOLERANCE = 1e-4  # float32 against float32, in logits of about 3
PROMPT, STEPS, CHUNK = 70, 40, 16  # longer than the windows (24), and than what LongRoPE and YaRN were trained on (64)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("family")
    return make_family(request.param, folder), folder


@pytest.fixture(scope="module")
def prompt() -> list[int]:
    return torch.randint(320, (PROMPT,), generator=torch.Generator().manual_seed(1)).tolist()


@torch.inference_mode()
def expected_logits(theirs: Any, token_ids: list[int]) -> torch.Tensor:
    return theirs(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0].float()


def test_logits_are_transformers_at_every_position(family: tuple[Any, Path], prompt: list[int]) -> None:
    theirs, folder = family
    ours = ModelWithCache(load_checkpoint(str(folder)), ReferenceOperations(torch.device("cpu")))
    wanted = expected_logits(theirs, prompt)
    assert wanted.std() > 1  # of weights so large that an error would show
    torch.testing.assert_close(ours.logits(prompt, PROMPT), wanted, atol=TOLERANCE, rtol=0)


def test_greedy_tokens_are_transformers_in_chunks_and_one_by_one(family: tuple[Any, Path], prompt: list[int]) -> None:
    theirs, folder = family
    ours = ModelWithCache(load_checkpoint(str(folder)), ReferenceOperations(torch.device("cpu")))
    for end in range(CHUNK, PROMPT + CHUNK, CHUNK):
        logits = ours.logits(prompt[:end], PROMPT, start=end - CHUNK)
    found = list(prompt)
    for _ in range(STEPS):
        found.append(int(logits[-1].argmax()))
        logits = ours.logits(found, PROMPT, start=len(found) - 1)
    expected = list(prompt)
    for _ in range(STEPS):
        expected.append(int(expected_logits(theirs, expected)[-1].argmax()))
    assert found == expected


def test_a_row_has_the_same_bits_in_any_chunk_and_company(family: tuple[Any, Path], prompt: list[int]) -> None:
    _, folder = family
    model = ModelWithCache(
        load_checkpoint(str(folder)), ReferenceOperations(torch.device("cpu")), num_positions=96, num_sequences=3
    )
    whole = model.logits(prompt, PROMPT - 5)  # the last five count as generated
    others = [Tokens(prompt[9:40], 31, index=1), Tokens(prompt[3:50], 20, index=2)]
    for start in range(0, PROMPT, 7):
        mine = Tokens(prompt[: start + 7], PROMPT - 5, start)
        together = model.logits_of_all([others[0], mine, others[1]])[31:38]
        assert torch.equal(together, whole[start : start + 7])
