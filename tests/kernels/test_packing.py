"""Weights packed from a file's own bytes are, bit for bit, those packed from codes that the torch twin unpacked."""

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind

from engine.loader.gguf_blocks import is_group_format, quantised_matrix
from kernels.code_layout import BYTES, CodeLayout
from kernels.cpu.embedding import embed
from kernels.cpu.packing import pack_panels
from kernels.cpu.products import pack
from kernels.cpu.program import Machine
from kernels.matrix import QuantisedMatrix

KINDS = [kind for kind in Kind if is_group_format(kind)]


def as_stored(kind: Kind, rows: int, columns: int) -> QuantisedMatrix:
    """Of random bytes, their halves made small."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(kind).integers(0, 256, rows * columns // block * size, dtype=np.uint8)
    halves = raw.view(np.float16)
    halves[...] = np.where(np.abs(halves) < 2, halves, np.float16(0.5))
    return quantised_matrix(raw, kind, (rows, columns))


def unpacked(matrix: QuantisedMatrix) -> QuantisedMatrix:
    return QuantisedMatrix(matrix.bits, matrix.layout.unpack(matrix.codes), matrix.scales, matrix.minimums)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 16, 37])
def test_panels_and_their_copies(machine: Machine, kind: Kind, rows: int) -> None:
    stored = as_stored(kind, rows, 512)
    assert stored.layout != BYTES
    found, wanted = (pack_panels(machine, [each], bf16_copy=True) for each in (stored, unpacked(stored)))
    assert [part.unit for part in found.parts] == [part.unit for part in wanted.parts]
    for mine, twin in zip(found.memory, wanted.memory, strict=True):
        assert torch.equal(mine, twin)
    assert found.memory[0].any()


@pytest.mark.parametrize("kind", KINDS)
def test_embeddings(machine: Machine, kind: Kind) -> None:
    stored = as_stored(kind, 70, 512)
    found, wanted = (pack(machine, [each]) for each in (stored, unpacked(stored)))
    ids = torch.arange(70)
    assert torch.equal(embed(machine, ids, found, 1.0), embed(machine, ids, wanted, 1.0))


@pytest.mark.parametrize("kind", KINDS)
def test_the_copy_is_the_matrix_rounded_to_bfloat16(machine: Machine, kind: Kind) -> None:
    """In panels of 16 outputs, two inputs of each side by side. K formats round their scales, too."""
    stored = as_stored(kind, 32, 512)
    copy = pack_panels(machine, [stored], bf16_copy=True).memory[1].view(torch.bfloat16)
    found = copy.view(2, 256, 16, 2).transpose(1, 2).reshape(32, 512).float()
    wanted = stored.dequantise()
    assert (found - wanted).abs().max() <= 2**-7 * wanted.abs().max()


def test_two_bits_of_a_byte_are_not_mixed_up() -> None:
    """One block of Q5_K by hand: group 1's code 3 alone has its fifth bit, and high halves are the second group's."""
    layout = CodeLayout(176, 8, first=48, run=32, fifth=16)
    block = torch.zeros(1, 176, dtype=torch.uint8)
    block[0, 16 + 3] = 0b10
    block[0, 48 + 5] = 0xA7
    codes = layout.unpack(block)
    assert {i: int(codes[0, i]) for i in codes[0].nonzero().flatten().tolist()} == {5: 7, 32 + 3: 16, 32 + 5: 10}
