"""Rows of the embedding table, in every form in which a file may have it, are the table's rows."""

import pytest
import torch

from kernels.cpu.embedding import embed
from kernels.cpu.products import pack
from kernels.cpu.program import Machine
from kernels.matrix import Matrix, QuantisedMatrix, dense

TOKENS, SIZE = 70, 96


def quantised(bits: int) -> QuantisedMatrix:
    generator = torch.Generator().manual_seed(bits)
    codes = torch.randint(1 << bits, (TOKENS, SIZE), dtype=torch.uint8, generator=generator)
    scales, minimums = (torch.randn(TOKENS, SIZE // 32, generator=generator).half() for _ in range(2))
    return QuantisedMatrix(bits, codes, scales, minimums)


@pytest.mark.parametrize("rows", [1, 9, 64])
@pytest.mark.parametrize(
    "table", [torch.randn(TOKENS, SIZE).bfloat16(), quantised(4), quantised(8)], ids=["bf16", "4", "8"]
)
def test_rows_of_the_table(machine: Machine, table: Matrix, rows: int) -> None:
    token_ids = torch.randint(TOKENS, (rows,), generator=torch.Generator().manual_seed(rows))
    token_ids[0] = TOKENS - 1
    wanted = dense(table).double()[token_ids] * 1.5
    found = embed(machine, token_ids, pack(machine, [table]), 1.5)
    assert found.dtype == torch.float32
    assert (found - wanted).abs().max() <= 2e-6 * wanted.abs().max()


def test_other_floats_become_bfloat16(machine: Machine) -> None:
    table = torch.randn(TOKENS, SIZE, generator=torch.Generator().manual_seed(0))
    found = embed(machine, torch.arange(TOKENS), pack(machine, [table]), 1.0)
    assert torch.equal(found, table.bfloat16().float())
