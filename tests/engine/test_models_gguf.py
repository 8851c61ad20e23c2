"""GGUF files of every family against the same weights in safetensors, which other tests compare with transformers."""

from pathlib import Path

import pytest
import torch
from families import FAMILIES, ModelWithCache, make_family
from gguf.constants import GGMLQuantizationType as Kind
from gguf_family import write_gguf
from safetensors.torch import save_file

from engine.errors import ModelLoadError
from engine.loader.checkpoint import load_checkpoint
from engine.models.rope import LinearScaling, RopeScaling, YarnScaling
from kernels.reference import ReferenceOperations

PROMPT = torch.randint(320, (70,), generator=torch.Generator().manual_seed(1)).tolist()
NOT_IN_GGUF = {"qwen2 with windows", "qwen3 with experts in one layer"}  # its keys can't say these


GEMMA = {"query_pre_attn_scalar": 32}  # GGUF has no key for it: it is head_dim, but for the largest models


def logits(path: Path) -> torch.Tensor:
    model = ModelWithCache(load_checkpoint(str(path)), ReferenceOperations(torch.device("cpu")))
    return model.logits(PROMPT, len(PROMPT))


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - NOT_IN_GGUF))
@pytest.mark.parametrize("kind", [Kind.F32, Kind.Q8_0])
def test_both_formats_give_one_model(tmp_path: Path, name: str, kind: Kind) -> None:
    make_family(name, tmp_path, **GEMMA if name.startswith("gemma") else {})
    rounded = write_gguf(tmp_path, tmp_path / "model.gguf", kind)
    save_file({key: torch.from_numpy(weight) for key, weight in rounded.items()}, tmp_path / "model.safetensors")
    torch.testing.assert_close(logits(tmp_path / "model.gguf"), logits(tmp_path), atol=1e-4, rtol=0)


def test_the_largest_gemma_is_known_by_its_layers(tmp_path: Path) -> None:
    """Its scores are scaled by hidden / heads, 64 / 4, and not by head_dim: llama.cpp goes by the layers, too."""
    make_family("gemma2", tmp_path, query_pre_attn_scalar=16, num_hidden_layers=46)
    write_gguf(tmp_path, tmp_path / "model.gguf")
    torch.testing.assert_close(logits(tmp_path / "model.gguf"), logits(tmp_path), atol=1e-4, rtol=0)


def test_windows_may_be_told_layer_by_layer(tmp_path: Path) -> None:
    make_family("gemma3", tmp_path)
    write_gguf(tmp_path, tmp_path / "a.gguf", attention__sliding_window_pattern=[True, False, True, True])
    assert load_checkpoint(str(tmp_path / "a.gguf")).config.windows == (24, None, 24, 24)
    write_gguf(tmp_path, tmp_path / "b.gguf", attention__sliding_window_pattern=None)
    assert load_checkpoint(str(tmp_path / "b.gguf")).config.windows == (24,) * 4  # every sixth sees everything
    write_gguf(tmp_path, tmp_path / "c.gguf", attention__sliding_window=0)
    assert load_checkpoint(str(tmp_path / "c.gguf")).config.windows == ()


def test_rope_scaling_as_files_write_it(tmp_path: Path) -> None:
    def scaling(family: str, **changes: object) -> RopeScaling | None:
        make_family(family, tmp_path)
        write_gguf(tmp_path, tmp_path / "model.gguf", **changes)  # type: ignore[arg-type]
        return load_checkpoint(str(tmp_path / "model.gguf")).config.rope.scaling

    assert scaling("llama") is None
    assert scaling("llama", rope__scale_linear=2.0) == LinearScaling(2.0)
    assert scaling("llama", rope__scaling__factor=4.0, rope__scale_linear=2.0) == LinearScaling(4.0)
    plain, louder = (scaling("qwen2 with yarn", **more) for more in ({}, {"rope__scaling__attn_factor": 0.5}))
    assert isinstance(plain, YarnScaling)
    assert isinstance(louder, YarnScaling)
    assert louder.attention_factor == pytest.approx(plain.attention_factor / 2)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("llama", {"rope__scaling__type": "dynamic"}, "rope scaling 'dynamic' is not supported"),
        ("llama 3", {"rope__scaling__type": "linear"}, "rope scaling 'linear' together with rope_freqs"),
        ("llama", {"rope__scaling__attn_factor": 0.5}, "attn_factor with rope scaling 'none' is not supported"),
        ("llama", {"attention__value_length": 16}, "values of another size than keys"),
        ("llama", {"logit_scale": 0.5}, "llama.logit_scale is not supported"),
        ("llama", {"block_count": 1 << 20}, "num_layers = 1048576, more than 4096"),
        ("llama", {"rope__dimension_count": 128}, "rotates 128 elements of heads of 32"),
        ("qwen2 with yarn", {"rope__scaling__yarn_ext_factor": 0.5}, "yarn_ext_factor is not supported"),
        ("qwen2 with yarn", {"rope__scaling__original_context_length": None}, "original_context_length is missing"),
        ("phi3 with longrope", {"rope__dimension_count": 8}, "8 factors for 4 frequencies"),
        ("qwen3 with experts", {"expert_gating_func": 2}, "not chosen by a softmax"),
        ("qwen3 with experts", {"expert_shared_count": 1}, "expert_shared_count is not supported"),
        ("qwen3 with experts", {"expert_used_count": None}, "expert_used_count is missing"),
        ("qwen3 with experts", {"expert_count": 7}, r"ffn_gate_exps\.weight has shape \[8, 32, 64\]"),
        ("gemma2", {"attention__sliding_window_pattern": [True]}, "1 kinds of attention for 4 layers"),
    ],
)
def test_what_a_file_asks_for_and_cannot_have_is_refused_by_its_key(
    tmp_path: Path, family: str, changes: dict[str, object], message: str
) -> None:
    make_family(family, tmp_path)
    write_gguf(tmp_path, tmp_path / "model.gguf", **changes)  # type: ignore[arg-type]
    with pytest.raises(ModelLoadError, match=message):
        logits(tmp_path / "model.gguf")
