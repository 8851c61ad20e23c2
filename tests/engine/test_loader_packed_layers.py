"""GPTQ and AWQ layers, packed here by the formulas of AutoGPTQ and AutoAWQ, come back exactly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_files import HEAD_DIM, HEADS, HIDDEN, random_weights, write_folder
from safetensors.torch import save_file

from engine.errors import ModelLoadError
from engine.loader.checkpoint import load_checkpoint
from engine.loader.folder_weights import FolderWeights
from kernels.matrix import QuantisedMatrix

OUTPUTS, INPUTS = 24, 256
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
GPTQ: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 64}
AWQ: dict[str, Any] = {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"}


class Layer:
    """Random codes [K, N], zeros and scales [G, N], and the weight [N, K] they stand for."""

    def __init__(self, bits: int, group_size: int, *, symmetric: bool = False, scattered: bool = False) -> None:
        random = np.random.default_rng(bits * group_size)
        groups = INPUTS // group_size
        self.codes = random.integers(0, 2**bits, (INPUTS, OUTPUTS), dtype=np.uint32)
        self.zeros = random.integers(1, 2**bits + 1, (groups, OUTPUTS), dtype=np.uint32)
        if symmetric:
            self.zeros[:] = 2 ** (bits - 1)
        self.scales = (random.random((groups, OUTPUTS)) / 8).astype(np.float16)
        self.g_idx = np.arange(INPUTS, dtype=np.int32) // group_size
        if scattered:
            random.shuffle(self.g_idx)

    @property
    def weight(self) -> torch.Tensor:
        zeros, scales = self.zeros[self.g_idx].astype(np.float64), self.scales[self.g_idx].astype(np.float64)
        return torch.from_numpy((scales * (self.codes - zeros)).T.astype(np.float32))

    def gptq(self, bits: int, zero_offset: int = 1) -> dict[str, torch.Tensor]:
        return {
            "qweight": as_int32(packed_along_rows(self.codes, bits)),
            "qzeros": as_int32(packed_along_rows((self.zeros - zero_offset).T, bits).T),
            "scales": torch.from_numpy(self.scales),
            "g_idx": torch.from_numpy(self.g_idx),
        }

    def awq(self) -> dict[str, torch.Tensor]:
        return {
            "qweight": as_int32(awq_packed(self.codes)),
            "qzeros": as_int32(awq_packed(self.zeros)),
            "scales": torch.from_numpy(self.scales),
        }


def packed_along_rows(values: np.ndarray, bits: int) -> np.ndarray:
    per_int = 32 // bits
    packed = np.zeros((len(values) // per_int, values.shape[1]), np.uint32)
    for row, value in enumerate(values):
        packed[row // per_int] |= value << np.uint32(bits * (row % per_int))
    return packed


def awq_packed(values: np.ndarray) -> np.ndarray:
    packed = np.zeros((len(values), values.shape[1] // 8), np.uint32)
    for column in range(packed.shape[1]):
        for nibble in range(8):
            packed[:, column] |= values[:, 8 * column + AWQ_ORDER[nibble]] << np.uint32(4 * nibble)
    return packed


def as_int32(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values).view(np.int32))


def weights_of(folder: Path, layer: dict[str, torch.Tensor], config: dict[str, Any]) -> FolderWeights:
    save_file({f"a.{name}": tensor.contiguous() for name, tensor in layer.items()}, folder / "model.safetensors")
    return FolderWeights(folder, config)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group_size", [32, 64, 128, -1])
@pytest.mark.parametrize("symmetric", [True, False])
def test_gptq_layers_come_quantised(tmp_path: Path, bits: int, group_size: int, symmetric: bool) -> None:
    layer = Layer(bits, INPUTS if group_size == -1 else group_size, symmetric=symmetric)
    weights = weights_of(tmp_path, layer.gptq(bits), GPTQ | {"bits": bits, "group_size": group_size})
    found = weights.matrix("a.weight", (OUTPUTS, INPUTS))
    assert isinstance(found, QuantisedMatrix)
    assert found.bits == bits
    assert found.scales.shape == found.minimums.shape == (OUTPUTS, INPUTS // 32)
    assert torch.equal(found.dequantise(), layer.weight)
    assert torch.equal(weights.get("a.weight", (OUTPUTS, INPUTS)), layer.weight)
    assert "a.weight" in weights


def test_format_2_stores_zeros_as_they_are(tmp_path: Path) -> None:
    layer = Layer(4, 64)
    layer.zeros -= 1  # such a zero may be 0, and 16 can't be stored
    found = weights_of(tmp_path, layer.gptq(4, zero_offset=0), GPTQ | {"checkpoint_format": "gptq_v2"})
    assert torch.equal(found.get("a.weight", (OUTPUTS, INPUTS)), layer.weight)


def test_groups_by_activation_order_come_as_floats(tmp_path: Path) -> None:
    layer = Layer(4, 64, scattered=True)
    found = weights_of(tmp_path, layer.gptq(4), GPTQ | {"desc_act": True}).matrix("a.weight", (OUTPUTS, INPUTS))
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found, layer.weight)


def test_a_missing_g_idx_means_groups_in_order(tmp_path: Path) -> None:
    layer = Layer(4, 64)
    packed = layer.gptq(4)
    del packed["g_idx"]
    assert torch.equal(weights_of(tmp_path, packed, GPTQ).get("a.weight", (OUTPUTS, INPUTS)), layer.weight)


@pytest.mark.parametrize("group_size", [32, 128])
def test_awq_layers_come_quantised(tmp_path: Path, group_size: int) -> None:
    layer = Layer(4, group_size)
    layer.zeros -= 1
    found = weights_of(tmp_path, layer.awq(), AWQ | {"group_size": group_size}).matrix("a.weight", (OUTPUTS, INPUTS))
    assert isinstance(found, QuantisedMatrix)
    assert torch.equal(found.dequantise(), layer.weight)


@pytest.mark.parametrize("where", ["config.json", "quantize_config.json"])
def test_a_model_folder_says_how_it_is_packed(tmp_path: Path, where: str) -> None:
    weights = random_weights()
    name = "model.layers.0.self_attn.q_proj"
    tensors = {key: tensor for key, tensor in weights.items() if key != f"{name}.weight"}
    codes = np.random.default_rng(0).integers(0, 16, (HIDDEN, HEADS * HEAD_DIM), dtype=np.uint32)
    tensors[f"{name}.qweight"] = as_int32(packed_along_rows(codes, 4))
    tensors[f"{name}.qzeros"] = torch.full((1, HEADS * HEAD_DIM // 8), 0x77777777, dtype=torch.int32)
    tensors[f"{name}.scales"] = torch.full((1, HEADS * HEAD_DIM), 0.25, dtype=torch.float16)
    config = {"bits": 4, "group_size": HIDDEN, "sym": True}
    if where == "config.json":
        write_folder(tmp_path, tensors, quantization_config=config | {"quant_method": "gptq"})
    else:
        write_folder(tmp_path, tensors)
        (tmp_path / where).write_text(str(config).replace("'", '"').replace("True", "true"))
    found = load_checkpoint(str(tmp_path)).weights
    expected = (torch.from_numpy(codes.T.astype(np.float32)) - 8) / 4
    assert torch.equal(found.get(f"{name}.weight", (HEADS * HEAD_DIM, HIDDEN)), expected)
    assert torch.equal(found.get("model.norm.weight", (HIDDEN,)), weights["model.norm.weight"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, r"'bitsandbytes' .*GGUF files"),
        ({"quant_method": "fp8"}, "quantised by 'fp8'"),
        ({"quant_method": "compressed-tensors"}, "quantised by 'compressed-tensors'"),
        (GPTQ | {"bits": 3}, r"'gptq' \(3 bits\)"),
        (AWQ | {"bits": 8}, r"'awq' \(8 bits\)"),
        (AWQ | {"version": "gemv"}, "awq 'gemv'"),
        (GPTQ | {"checkpoint_format": "marlin"}, "gptq 'marlin'"),
        (GPTQ | {"group_size": 0}, "group_size is 0"),
        (GPTQ | {"group_size": "x"}, "group_size is 'x'"),
        (GPTQ | {"group_size": 16}, "groups of 16 can't be read"),
        (GPTQ | {"group_size": 96}, "groups of 96 can't be read"),
        (GPTQ | {"group_size": 128}, r"a.qzeros has shape \[4, 3\], the config calls for \[2, 3\]"),
    ],
)
def test_what_is_not_here_is_refused_by_name(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        weights_of(tmp_path, Layer(4, 64).gptq(4), config).matrix("a.weight", (OUTPUTS, INPUTS))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("qweight", lambda t: t[1:], r"a.qweight has shape \[31, 24\]"),
        ("qweight", lambda t: t.float(), "a.qweight is torch.float32, not torch.int32"),
        ("scales", lambda t: t.clone().fill_(torch.nan), "a.scales holds values that are not finite"),
        ("scales", lambda t: t.int(), "a.scales is torch.int32, not torch.float16"),
        ("g_idx", lambda t: t + 1, "a.g_idx names groups beyond the 4"),
        ("g_idx", lambda t: t - 1, "a.g_idx names groups beyond the 4"),
        ("qzeros", None, "tensor a.qzeros is missing"),
    ],
)
def test_damaged_layers_are_refused_by_name(tmp_path: Path, name: str, change: Any, message: str) -> None:
    packed = Layer(4, 64).gptq(4)
    tensor = packed.pop(name)
    if change is not None:
        packed[name] = change(tensor)
    with pytest.raises(ModelLoadError, match=message):
        weights_of(tmp_path, packed, GPTQ).matrix("a.weight", (OUTPUTS, INPUTS))
