"""Every implementation against its torch twin, and each row against itself in other company."""

import pytest
import torch

from kernels.batch import SequenceRows, TokenBatch
from kernels.cpu.build import KernelUnavailableError
from kernels.cpu.old.operations import Avx512Operations
from kernels.operations import HeadShape, Operations
from kernels.reference import ReferenceOperations
from kernels.self_test import attention_of

CPU = torch.device("cpu")


def implementations() -> list[Operations]:
    """What this machine can run; the twin always."""
    try:
        return [ReferenceOperations(CPU), Avx512Operations()]
    except KernelUnavailableError:
        return [ReferenceOperations(CPU)]


@pytest.fixture(params=implementations(), ids=lambda each: each.name)
def operations(request: pytest.FixtureRequest) -> Operations:
    return request.param


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16().float()


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool((found.float() - wanted).abs().max() <= 0.01 * wanted.abs().max())


@pytest.mark.parametrize(
    "shape", [(1, 32, 16), (7, 33, 18), (12, 100, 64), (13, 960, 576), (130, 64, 1536), (3, 9000, 32)]
)
def test_products(operations: Operations, shape: tuple[int, int, int]) -> None:
    rows, outputs, inputs = shape
    x, matrix = random(rows, inputs), random(outputs, inputs, seed=1)
    packed = operations.pack(matrix)
    wanted = (x.double() @ matrix.double().T).float()
    assert close(operations.linear(x.to(operations.dtype), packed), wanted)
    logits = operations.logits(x.to(operations.dtype), packed)
    assert logits.dtype == torch.float32
    assert (logits - wanted).abs().max() < 1e-4 * wanted.abs().max()


@pytest.mark.parametrize("shape", [(960, 576), (576, 1536), (100, 48)])
def test_a_product_has_the_same_bits_for_any_number_of_rows(operations: Operations, shape: tuple[int, int]) -> None:
    packed, x = operations.pack(random(*shape)), random(257, shape[1], seed=1).to(operations.dtype)
    together = operations.linear(x, packed)
    for rows in (*range(1, 34), 64, 120, 121, 256):
        assert torch.equal(operations.linear(x[:rows].contiguous(), packed), together[:rows])
    assert torch.equal(operations.linear(x[100:101].contiguous(), packed), together[100:101])


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_norm_and_gate(operations: Operations, rows: int) -> None:
    residual, update, weight = random(rows, 96), random(rows, 96, seed=1), random(96, seed=2)
    total = (residual + update).double()
    wanted = total / (total.square().mean(1, keepdim=True) + 1e-5).sqrt() * weight
    changed = residual.clone()
    assert close(operations.add_rms_norm(changed, update.to(operations.dtype), weight, 1e-5), wanted.float())
    assert torch.equal(changed, residual + update)
    assert torch.equal(
        operations.add_rms_norm(changed.clone(), None, weight, 1e-5)[:1],
        operations.add_rms_norm(changed[:1].clone(), None, weight, 1e-5),
    )
    gate_up = torch.cat([random(rows, 48, seed=3) * 40, random(rows, 48, seed=4)], dim=1)
    gate, up = gate_up.double().chunk(2, dim=1)
    assert close(operations.silu_mul(gate_up.to(operations.dtype)), (gate / (1 + (-gate).exp()) * up).float())


@pytest.mark.parametrize("heads", [HeadShape(9, 3, 64), HeadShape(4, 4, 32), HeadShape(7, 1, 96), HeadShape(8, 2, 128)])
def test_attention_over_pages_is_attention(operations: Operations, heads: HeadShape) -> None:
    """Against softmax over the whole sequence, rotated in complex numbers; no pages, no tiles."""
    length, ids = 77, [3, 0, 5, 1, 2]
    qkv = random(length, heads.qkv_size)
    angles = torch.outer(
        torch.arange(128.0), torch.rand(heads.head_dim // 2, generator=torch.Generator().manual_seed(5))
    )
    cache = operations.new_cache(1, 6, heads)
    found = []
    for start, count in ((0, 30), (30, 46), (76, 1)):
        batch = TokenBatch([SequenceRows(start, count, ids)], CPU)
        rows = qkv[start : start + count].to(operations.dtype).clone()
        operations.rope_and_store(rows, angles.cos(), angles.sin(), batch, cache, 0, heads)
        found.append(operations.paged_attention(rows, batch, cache, 0, heads))

    def split(first: int, count: int) -> torch.Tensor:
        return qkv[:, first * heads.head_dim : (first + count) * heads.head_dim].view(length, count, heads.head_dim)

    def rotated(x: torch.Tensor) -> torch.Tensor:
        pairs = torch.complex(*x.chunk(2, dim=-1)) * torch.polar(torch.ones(()), angles[:length, None])
        return torch.cat([pairs.real, pairs.imag], dim=-1)

    group = heads.num_heads // heads.num_kv_heads
    q = rotated(split(0, heads.num_heads))
    k = rotated(split(heads.num_heads, heads.num_kv_heads)).repeat_interleave(group, 1)
    v = split(heads.num_heads + heads.num_kv_heads, heads.num_kv_heads).repeat_interleave(group, 1)
    scores = torch.einsum("ihd,jhd->hij", q, k) * heads.head_dim**-0.5 + torch.full((length, length), -torch.inf).triu(
        1
    )
    wanted = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(length, -1)
    assert (torch.cat(found).float() - wanted).abs().max() < (0.05 if operations.dtype == torch.bfloat16 else 1e-4)


def test_a_rows_attention_does_not_depend_on_the_batch(operations: Operations) -> None:
    heads = HeadShape(6, 2, 64)
    cache = operations.new_cache(1, 64, heads)
    cos, sin = torch.ones(128, 32), torch.zeros(128, 32)
    sequences = [SequenceRows(0, 5 + 11 * i, range(8 * i, 8 * i + 8)) for i in range(8)]
    qkv = random(sum(rows.num_tokens for rows in sequences), heads.qkv_size).to(operations.dtype)
    batch = TokenBatch(sequences, CPU)
    operations.rope_and_store(qkv, cos, sin, batch, cache, 0, heads)
    together = operations.paged_attention(qkv, batch, cache, 0, heads)
    for sequence, first in zip(sequences, batch.first_row, strict=True):
        for token in {0, sequence.num_tokens // 2, sequence.num_tokens - 1}:
            row = qkv[first + token : first + token + 1]
            alone = TokenBatch([SequenceRows(token, 1, sequence.block_ids)], CPU)
            assert torch.equal(operations.paged_attention(row, alone, cache, 0, heads)[0], together[first + token])


def test_the_twins_agree_on_the_self_tests_attention() -> None:
    heads = HeadShape(8, 2, 64)
    results = [attention_of(each, heads, torch.Generator().manual_seed(1)).float() for each in implementations()]
    assert all(close(result, results[0]) for result in results)


@pytest.mark.parametrize("rubbish", [float("nan"), float("inf")])
@pytest.mark.parametrize("length", [1, 2, 5, 16, 17, 31, 63, 65])
def test_what_an_earlier_sequence_left_in_a_block_is_not_seen(
    operations: Operations, rubbish: float, length: int
) -> None:
    """Of a cache full of rubbish, and of one full of zeros, a sequence sees the same: its own tokens."""
    heads, ids = HeadShape(4, 2, 32), [3, 5, 1, 2, 4]  # block 0, which pads block tables, is another's
    cos, sin = torch.ones(128, 16), torch.zeros(128, 16)
    found = []
    for content in (0.0, rubbish):
        cache = operations.new_cache(1, 6, heads)
        for kind in (cache.keys[0], cache.values[0]):
            kind.fill_(content)
        batch = TokenBatch([SequenceRows(0, length, ids[: -(-length // 16)])], CPU)
        qkv = random(length, heads.qkv_size).to(operations.dtype)
        operations.rope_and_store(qkv, cos, sin, batch, cache, 0, heads)
        found.append(operations.paged_attention(qkv, batch, cache, 0, heads))
    assert torch.equal(found[0], found[1])
    assert torch.isfinite(found[1]).all()


def test_the_twins_norm_takes_an_odd_width() -> None:
    x, weight = random(3, 33), random(33, seed=1)
    wanted = x.double() / (x.double().square().mean(1, keepdim=True) + 1e-5).sqrt() * weight
    twin = ReferenceOperations(CPU)
    found = twin.add_rms_norm(x.clone(), None, weight, 1e-5)
    assert close(found, wanted.float())
    assert torch.equal(twin.add_rms_norm(x[1:2].clone(), None, weight, 1e-5), found[1:2])
