"""Every family on the C++ kernels of every instruction set here, against transformers' float32 model of it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from families import FAMILIES, ModelWithCache, Tokens, make_family, shape_of
from gguf.constants import GGMLQuantizationType as Kind
from gguf_family import write_gguf

from engine.loader.checkpoint import load_checkpoint
from engine.runner import Runner
from engine.types import EngineOptions
from kernels.cpu.build import LEVELS
from kernels.cpu.operations import CpuOperations
from kernels.reference import ReferenceOperations
from tests.support.kernels import skipping_what_the_machine_lacks

# Logits spread by 1.5; transformers' own model in bfloat16 is off by 0.02 to 0.2 (root mean square), by 3 at most.
TYPICAL, LARGEST = 0.08, 1.0
INT8_TYPICAL = 0.12  # generated tokens' activations are int8 where weights are quantised
PROMPT = torch.randint(320, (70,), generator=torch.Generator().manual_seed(1)).tolist()
NUM_PROMPT = 40  # the other 30 run as generated tokens


@pytest.fixture(scope="module", params=LEVELS)
def operations(request: pytest.FixtureRequest) -> CpuOperations:
    with skipping_what_the_machine_lacks():
        return CpuOperations(LEVELS[request.param])


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Path]:
    folder = tmp_path_factory.mktemp("family")
    return request.param, make_family(request.param, folder), folder


def test_logits_are_transformers_within_rounding(operations: CpuOperations, family: tuple[str, Any, Path]) -> None:
    name, theirs, folder = family
    checkpoint = load_checkpoint(str(folder))
    assert operations.supports(shape_of(checkpoint.config))
    with torch.inference_mode():
        wanted = theirs(input_ids=torch.tensor([PROMPT]), use_cache=False).logits[0]
    error = ModelWithCache(checkpoint, operations).logits(PROMPT, NUM_PROMPT) - wanted
    assert error.square().mean(dim=1).sqrt().median() < TYPICAL
    if "experts" not in name and name != "mixtral":  # there, rounding may send a token to another expert
        assert error.abs().max() < LARGEST


def test_a_row_has_the_same_bits_in_any_chunk_and_company(
    operations: CpuOperations, family: tuple[str, Any, Path]
) -> None:
    _, _, folder = family
    model = ModelWithCache(load_checkpoint(str(folder)), operations, num_positions=96, num_sequences=3)
    whole = model.logits(PROMPT, NUM_PROMPT)
    others = [Tokens(PROMPT[9:40], 31, index=1), Tokens(PROMPT[3:50], 20, index=2)]
    for start in range(0, len(PROMPT), 7):
        mine = Tokens(PROMPT[: start + 7], NUM_PROMPT, start)
        together = model.logits_of_all([others[0], mine, others[1]])[31:38]
        assert torch.equal(together, whole[start : start + 7])


def test_experts_of_a_size_the_kernels_do_not_know_run_in_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOLLHOUSE_KERNELS", raising=False)
    make_family("qwen3 with experts", tmp_path, moe_intermediate_size=40)
    assert Runner(EngineOptions(model=str(tmp_path), kv_cache_mb=4)).info.dtype == "float32"


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.Q4_0])
@pytest.mark.parametrize("name", ["llama with biases", "qwen3", "gemma3", "phi3", "mixtral"])
def test_quantised_weights_are_multiplied_as_they_are(
    operations: CpuOperations, tmp_path: Path, name: str, kind: Kind
) -> None:
    """Against the torch twin of the same file: rounding the weights is the file's affair."""
    make_family(name, tmp_path)
    write_gguf(tmp_path, tmp_path / "model.gguf", kind)
    checkpoint = load_checkpoint(str(tmp_path / "model.gguf"))
    wanted = ModelWithCache(checkpoint, ReferenceOperations(torch.device("cpu"))).logits(PROMPT, NUM_PROMPT)
    error = (ModelWithCache(checkpoint, operations).logits(PROMPT, NUM_PROMPT) - wanted).square().mean(dim=1).sqrt()
    assert error[:NUM_PROMPT].median() < TYPICAL
    assert error[NUM_PROMPT:].median() < INT8_TYPICAL
