"""GGUF's block formats against the `gguf` package's own arithmetic, as floats and as quantised matrices."""

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind

from engine.errors import ModelLoadError
from engine.loader.dequantise import dequantise, matrix
from engine.loader.gguf_file import GGUFTensor
from kernels.matrix import QuantisedMatrix

ROWS = 6
FOUR_BITS = {Kind.Q4_0, Kind.Q4_1, Kind.Q4_K}
EIGHT_BITS = {Kind.Q5_0, Kind.Q5_1, Kind.Q8_0, Kind.Q5_K}
OTHERS = {Kind.Q2_K, Kind.Q3_K, Kind.Q6_K, Kind.IQ4_NL}  # groups of 16, or codes of unequal steps
FLOATS = {Kind.F16, Kind.BF16}


def random_tensor(kind: Kind) -> GGUFTensor:
    """Any bytes are a valid block, but for the halves: their exponents are kept small, so that all are finite."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    columns = max(2 * block, 64)
    raw = np.random.default_rng(kind).integers(0, 256, ROWS * columns // block * size, dtype=np.uint8)
    halves = raw.reshape(-1, size).view(np.float16) if size % 2 == 0 else raw[:0].view(np.float16)
    halves[...] = np.where(np.abs(halves) < 2, halves, np.float16(0.5))  # NaN is not less
    return GGUFTensor("t", kind, (ROWS, columns), raw)


@pytest.mark.parametrize("kind", sorted(FOUR_BITS | EIGHT_BITS | OTHERS | FLOATS))
def test_values_are_those_of_the_format(kind: Kind) -> None:
    tensor = random_tensor(kind)
    expected = torch.from_numpy(gguf.quants.dequantize(tensor.data, kind)).view(tensor.shape)
    found = matrix(tensor)
    assert torch.equal(dequantise(tensor).float(), expected)
    if isinstance(found, QuantisedMatrix):
        assert torch.equal(found.dequantise(), expected)
        assert found.bits == (4 if kind in FOUR_BITS else 8)
        assert int(found.layout.unpack(found.codes).max()) < 2**found.bits
    else:
        assert kind not in FOUR_BITS | EIGHT_BITS
        assert torch.equal(found.float(), expected)
    assert expected.std() > 0.01


def test_scales_stay_halves_unless_their_shift_is_none() -> None:
    small, large = (GGUFTensor("t", Kind.Q8_0, (1, 32), q8_block(scale)) for scale in (0.5, 60000.0))
    assert matrix(small).minimums.dtype == torch.float16  # type: ignore[union-attr]
    assert matrix(large).minimums.item() == -128 * float(np.float16(60000))  # type: ignore[union-attr]


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_scales_that_are_not_finite_are_refused(scale: float) -> None:
    with pytest.raises(ModelLoadError, match="tensor t holds values that are not finite"):
        matrix(GGUFTensor("t", Kind.Q8_0, (1, 32), q8_block(scale)))


@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q5_1, Kind.Q4_K])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 65504.0, -65504.0])
@pytest.mark.parametrize("half", [0, 1])
def test_each_half_of_each_block_is_looked_at(kind: Kind, value: float, half: int) -> None:
    size, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.full((3, num_bytes), 1, np.uint8)
    blocks[2, 2 * half : 2 * half + 2] = np.array([value], np.float16).view(np.uint8)
    tensor = GGUFTensor("t", kind, (3, size), blocks.reshape(-1))
    if np.isfinite(value):
        assert torch.isfinite(matrix(tensor).scales).all()  # type: ignore[union-attr]
    else:
        with pytest.raises(ModelLoadError, match="tensor t holds values that are not finite"):
            matrix(tensor)


def q8_block(scale: float) -> np.ndarray:
    return np.concatenate([np.array([scale], np.float16).view(np.uint8), np.arange(32, dtype=np.uint8)])
