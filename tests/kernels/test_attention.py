"""Attention over the paged cache, in every implementation: against its definition, and a row against itself."""

import random as randoms

import pytest
import torch

from kernels.batch import BLOCK_SIZE, SequenceRows, TokenBatch
from kernels.operations import (
    AttentionRule,
    CacheDtype,
    HeadNorms,
    HeadShape,
    KVCache,
    ModelShape,
    Operations,
    RotaryTables,
)

CPU = torch.device("cpu")
DTYPES: tuple[CacheDtype, ...] = ("auto", "int8", "fp8")
SMALL = HeadShape(6, 2, 32)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16().float()


def rotary_tables(rotary_dim: int) -> RotaryTables:
    angles = torch.outer(torch.arange(1024.0), torch.linspace(1.0, 0.01, rotary_dim // 2))
    return RotaryTables(angles.cos(), angles.sin())


def run(
    operations: Operations,
    qkv: torch.Tensor,
    sequences: list[SequenceRows],
    cache: KVCache,
    heads: HeadShape,
    rule: AttentionRule,
    norms: HeadNorms | None = None,
    rotary_dim: int = 0,
) -> torch.Tensor:
    """One step over qkv [T, qkv_size], in the order of `sequences`; the attended rows in that order."""
    batch = TokenBatch(sequences, CPU)
    rows = qkv.to(operations.dtype)[torch.from_numpy(batch.order)].contiguous()
    operations.rope_and_store(rows, rotary_tables(rotary_dim or heads.head_dim), batch, cache, 0, heads, norms)
    return operations.paged_attention(rows, batch, cache, 0, heads, rule)[torch.from_numpy(batch.row_of)].clone()


def definition(
    qkv: torch.Tensor, heads: HeadShape, rule: AttentionRule, norms: HeadNorms | None, rotary_dim: int
) -> torch.Tensor:
    """Of a whole sequence in float64; positions rotated as complex numbers."""
    length, size = len(qkv), heads.head_dim
    tables = rotary_tables(rotary_dim)
    turns = torch.complex(tables.cos, tables.sin)[:length, None]

    def rotated(x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        if norms is not None and weight is not None:
            x = x / (x.square().mean(-1, keepdim=True) + norms.eps).sqrt() * weight
        pairs = torch.complex(*x[..., :rotary_dim].chunk(2, dim=-1)) * turns
        return torch.cat([pairs.real, pairs.imag, x[..., rotary_dim:]], dim=-1)

    per_head = qkv.double().view(length, -1, size)
    q = per_head[:, : heads.num_heads]
    k, v = per_head[:, heads.num_heads :].chunk(2, dim=1)
    group = heads.num_heads // heads.num_kv_heads
    weights = (None, None) if norms is None else (norms.query, norms.key)
    q, k = (rotated(x, weight) for x, weight in zip((q, k), weights, strict=True))
    scores = torch.einsum("ihd,jhd->hij", q, k.repeat_interleave(group, 1)) * rule.scale
    if rule.softcap is not None:
        scores = rule.softcap * (scores / rule.softcap).tanh()
    distance = torch.arange(length)[:, None] - torch.arange(length)
    scores[:, (distance < 0) | (distance >= (rule.window or length))] = -torch.inf
    return torch.einsum("hij,jhd->ihd", scores.softmax(-1), v.repeat_interleave(group, 1)).reshape(length, -1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("heads", "rule", "rotary_dim", "normed"),
    [
        (HeadShape(9, 3, 64), AttentionRule(0.125), 64, False),
        (HeadShape(4, 4, 32), AttentionRule(0.2, softcap=5.0), 16, False),
        (HeadShape(7, 1, 96), AttentionRule(0.1, window=37), 72, True),
        (HeadShape(5, 5, 80), AttentionRule(0.1), 80, False),
        (HeadShape(8, 2, 128), AttentionRule(0.1, softcap=20.0, window=150), 128, True),
        (HeadShape(16, 1, 256), AttentionRule(0.0625), 64, True),
    ],
)
def test_attention_over_pages_is_attention(
    operations: Operations, heads: HeadShape, rule: AttentionRule, rotary_dim: int, normed: bool, dtype: CacheDtype
) -> None:
    length, num_prompt, ids = 300, 270, [7 * i % 19 for i in range(19)]
    qkv = random(length, heads.qkv_size)
    weights = random(2, heads.head_dim, seed=1)
    norms = HeadNorms(weights[0], weights[1], 1e-6) if normed else None
    cache = operations.new_cache(1, 19, heads, dtype)
    found, start = [], 0
    for count in (130, 29, 1, 100, 17, 1, 22):  # chunks of the prompt, one across its end, generated tokens
        sequence = SequenceRows(start, count, ids, num_prompt)
        rows = qkv[start : start + count]
        found.append(run(operations, rows, [sequence], cache, heads, rule, norms, rotary_dim))
        start += count
    wanted = definition(qkv, heads, rule, norms, rotary_dim)
    deviation = float((torch.cat(found) - wanted).norm() / wanted.norm())
    exact = {"auto": 1e-5 if operations.dtype == torch.float32 else 0.006, "int8": 0.015, "fp8": 0.06}
    assert deviation < exact[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "rule", [AttentionRule(0.2), AttentionRule(0.2, window=50), AttentionRule(0.3, softcap=4.0, window=300)]
)
def test_a_rows_bits_do_not_depend_on_chunks_and_company(
    operations: Operations, rule: AttentionRule, dtype: CacheDtype
) -> None:
    """Twelve sequences in steps that chance cuts, and each alone in one step for its prompt, then token by token."""
    chance = randoms.Random(str(rule) + dtype)
    lengths = [700, 1, 2, 15, 16, 17, 127, 129, 256, 257, 40, 300]
    num_prompt = [max(1, length - 14) for length in lengths]
    inputs = [random(length, SMALL.qkv_size, seed=i) for i, length in enumerate(lengths)]
    width = 700 // BLOCK_SIZE + 1
    ids = list(range(width * len(lengths)))
    chance.shuffle(ids)
    tables = [ids[i * width : (i + 1) * width] for i in range(len(lengths))]
    together = operations.new_cache(1, len(ids), SMALL, dtype)
    found: list[list[torch.Tensor]] = [[] for _ in lengths]
    done = [0] * len(lengths)
    while any(mine < length for mine, length in zip(done, lengths, strict=True)):
        chosen = [i for i, length in enumerate(lengths) if done[i] < length and chance.random() < 0.8]
        counts = [min(lengths[i] - done[i], chance.choice([1, 1, 3, 20, 200])) for i in chosen]
        if not chosen:
            continue
        rows = [SequenceRows(done[i], n, tables[i], num_prompt[i]) for i, n in zip(chosen, counts, strict=True)]
        qkv = torch.cat([inputs[i][done[i] : done[i] + n] for i, n in zip(chosen, counts, strict=True)])
        out = run(operations, qkv, rows, together, SMALL, rule)
        first = 0
        for i, count in zip(chosen, counts, strict=True):
            found[i].append(out[first : first + count])
            first += count
            done[i] += count
    for i, qkv in enumerate(inputs):
        alone = operations.new_cache(1, width, SMALL, dtype)
        for start, count in ((0, num_prompt[i]), *((p, 1) for p in range(num_prompt[i], lengths[i]))):
            sequence = SequenceRows(start, count, range(width), num_prompt[i])
            out = run(operations, qkv[start : start + count], [sequence], alone, SMALL, rule)
            assert torch.equal(out, torch.cat(found[i])[start : start + count])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 2, 5, 16, 17, 31, 63, 65])
def test_what_an_earlier_sequence_left_in_a_block_is_not_seen(
    operations: Operations, length: int, dtype: CacheDtype
) -> None:
    """Of a cache full of rubbish, and of one full of zeros, a sequence sees the same: its own tokens."""
    ids = [3, 5, 1, 2, 4]  # block 0, which pads block tables, is another's
    found = []
    for rubbish in (0x00, 0xFF, 0x7F):  # of bytes: 0xFF.. and 0x7F7F.. are NaN in bfloat16 and fp8, 0xFF.. in float32
        cache = operations.new_cache(1, 6, SMALL, dtype)
        for tensor in cache.tensors:
            tensor.view(torch.uint8).fill_(rubbish)
        for start, num_prompt in ((0, length), (length, length)):  # its prompt, and a generated token
            count = length if start == 0 else 1
            sequence = SequenceRows(start, count, ids[: -(-(start + count) // BLOCK_SIZE)], num_prompt)
            found.append(run(operations, random(count, SMALL.qkv_size), [sequence], cache, SMALL, AttentionRule(0.2)))
    assert torch.isfinite(torch.cat(found)).all()
    for prompt, generated in (found[2:4], found[4:6]):
        assert torch.equal(prompt, found[0])
        assert torch.equal(generated, found[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("column", [6 * 32 + 1, 8 * 32 + 1])  # of a key, of a value
def test_what_is_no_number_shows_in_what_sees_it(
    operations: Operations, dtype: CacheDtype, bad: float, column: int
) -> None:
    """Bytes have no NaN: without their scale's, a broken model's answers would look like any."""
    qkv = random(20, SMALL.qkv_size)
    qkv[3, column] = bad
    cache = operations.new_cache(1, 2, SMALL, dtype)
    prompt = run(operations, qkv[:19], [SequenceRows(0, 19, [0, 1], 19)], cache, SMALL, AttentionRule(0.2))
    generated = run(operations, qkv[19:], [SequenceRows(19, 1, [0, 1], 19)], cache, SMALL, AttentionRule(0.2))
    for row in (*prompt[3:], *generated):
        assert not row.isfinite().all()


@pytest.mark.parametrize("dtype", ["int8", "fp8"])
def test_tokens_that_are_next_to_nothing_stay_so(operations: Operations, dtype: CacheDtype) -> None:
    """Scales so small that their inverse is infinite."""
    cache = operations.new_cache(1, 2, SMALL, dtype)
    qkv = random(20, SMALL.qkv_size) * 1e-38
    out = run(operations, qkv, [SequenceRows(0, 20, [0, 1], 20)], cache, SMALL, AttentionRule(0.2))
    assert out.abs().max() <= qkv.abs().max()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_copied_block_holds_all_that_the_block_held(operations: Operations, dtype: CacheDtype) -> None:
    cache = operations.new_cache(2, 4, SMALL, dtype)
    rule, qkv = AttentionRule(0.2), random(20, SMALL.qkv_size)
    run(operations, qkv, [SequenceRows(0, 20, [0, 1], 20)], cache, SMALL, rule)
    for tensor in cache.tensors:
        tensor[2] = tensor[0]
        tensor[3] = tensor[1]
    next_token = random(1, SMALL.qkv_size, seed=1)
    outputs = [
        run(operations, next_token, [SequenceRows(20, 1, ids, 20)], cache, SMALL, rule) for ids in ([0, 1], [2, 3])
    ]
    assert torch.equal(*outputs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_block_is_as_large_as_it_says(operations: Operations, dtype: CacheDtype) -> None:
    cache = operations.new_cache(3, 5, SMALL, dtype)
    assert operations.block_bytes(3, SMALL, dtype) == sum(tensor[0].nbytes for tensor in cache.tensors)


@pytest.mark.parametrize("heads", [HeadShape(4, 2, 24), HeadShape(4, 2, 272), HeadShape(34, 2, 64)])
def test_the_kernels_refuse_heads_that_they_do_not_know(operations: Operations, heads: HeadShape) -> None:
    assert operations.supports(ModelShape(heads, 64, 64, 1)) == (operations.name == "reference")
    assert operations.supports(ModelShape(SMALL, 64, 64, 1))
