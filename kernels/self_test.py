"""Does an implementation compute what the torch twin computes? Asked once at start, before anything trusts it."""

import numpy as np
import torch

from kernels.batch import SequenceRows, TokenBatch
from kernels.operations import AttentionRule, HeadShape, KVCache, Operations, RotaryTables
from kernels.reference import ReferenceOperations
from kernels.sampling import RowChoices

_TOLERANCE = 0.03  # of the largest value: bfloat16 has 8 bits, and sums of a few hundred products are compared


class SelfTestError(Exception):
    """An operation's result is not its torch twin's; the message names the operation and the deviation."""


def run_self_test(operations: Operations, heads: HeadShape) -> None:
    """Every operation once, on fixed random inputs of a few rows and `heads`' dimension. Raises SelfTestError."""
    generator = torch.Generator().manual_seed(0)
    twin = ReferenceOperations(torch.device("cpu"))

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    def compare(name: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
        deviation = float((found.float() - wanted).abs().max() / wanted.abs().max())
        if not deviation <= _TOLERANCE:  # written so that NaN fails
            raise SelfTestError(f"{name} deviates by {deviation:.3g} of the largest value")

    rows, size = 13, 96
    x, matrix, norm = random(rows, size), random(80, size), random(size)
    x16, batch = x.to(operations.dtype), TokenBatch([SequenceRows(0, rows, [0], rows)], operations.device)
    found, wanted = (each.linear(y, each.pack([matrix]), batch) for each, y in ((operations, x16), (twin, x)))
    compare("linear", found, wanted)
    compare("logits", operations.logits(x16, operations.pack([matrix]), 0), twin.logits(x, twin.pack([matrix]), 0))
    compare(
        "add_rms_norm", operations.add_rms_norm(x.clone(), x16, norm, 1e-5), twin.add_rms_norm(2 * x, None, norm, 1e-5)
    )
    compare("gated", operations.gated(x16), twin.gated(x))
    found, wanted = (attention_of(each, heads, torch.Generator().manual_seed(1)) for each in (operations, twin))
    compare("rope_and_store and paged_attention", found, wanted)
    logits, choices = 3 * random(rows, 300), _choices_of_all_kinds(rows)
    if operations.sampling.argmax(logits) != twin.sampling.argmax(logits):
        raise SelfTestError("argmax finds other tokens")
    if operations.sampling.choose(logits, choices) != twin.sampling.choose(logits, choices):
        raise SelfTestError("choose draws other tokens")


def _choices_of_all_kinds(rows: int) -> RowChoices:
    """Greedy, top-k, top-p and min-p, in turns."""
    kind = np.arange(rows) % 4
    return RowChoices(
        temperature=np.where(kind == 0, 0, 1).astype(np.float32),
        top_k=np.where(kind == 1, 7, 0).astype(np.int32),
        top_p=np.where(kind == 2, 0.8, 1).astype(np.float32),
        min_p=np.where(kind == 3, 0.1, 0).astype(np.float32),
        uniform=(np.arange(rows) + 0.5) / rows,
    )


def attention_of(operations: Operations, heads: HeadShape, generator: torch.Generator) -> torch.Tensor:
    """Two sequences in two steps (a prompt of 21, then more rows of both) through a cache: the second step's rows."""
    cache: KVCache = operations.new_cache(1, 6, heads)
    angles = torch.outer(torch.arange(64.0), torch.rand(heads.head_dim // 2, generator=generator))
    tables = ((4, 1, 3), (0, 5, 2))
    steps = (((0, 21), (0, 3)), ((21, 1), (3, 30)))  # (start, number of tokens) of each sequence
    out = torch.empty(0)
    for step in steps:
        batch = TokenBatch(
            [SequenceRows(start, count, ids, 21) for (start, count), ids in zip(step, tables, strict=True)],
            operations.device,
        )
        qkv = torch.randn(batch.num_rows, heads.qkv_size, generator=generator).to(operations.dtype)
        operations.rope_and_store(qkv, RotaryTables(angles.cos(), angles.sin()), batch, cache, 0, heads)
        out = operations.paged_attention(qkv, batch, cache, 0, heads, AttentionRule(heads.head_dim**-0.5))
    return out
