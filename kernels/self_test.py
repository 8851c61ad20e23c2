"""Does an implementation compute what the torch twin computes? Asked once at start, before anything trusts it."""

from collections.abc import Callable

import numpy as np
import torch

from kernels.batch import SequenceRows, TokenBatch
from kernels.matrix import GROUP_SIZE, Matrix, QuantisedMatrix
from kernels.operations import (
    Activation,
    AttentionRule,
    CacheDtype,
    ExpertRule,
    HeadNorms,
    HeadShape,
    KVCache,
    Operations,
    RotaryTables,
)
from kernels.reference import ReferenceOperations
from kernels.sampling import RowChoices

_TOLERANCE = 0.03  # of the largest value: bfloat16 has 8 bits, and sums of a few hundred products are compared
_FP8_TOLERANCE = 0.15  # its codes have 3 bits of fraction, and a number near the middle becomes either neighbour
_ROWS, _SIZE, _OUTPUTS, _VOCABULARY = 13, 96, 80, 300

Result = Callable[[Operations], torch.Tensor]


class SelfTestError(Exception):
    """An operation's result is not its torch twin's; the message names the operation and the deviation."""


def run_self_test(operations: Operations, heads: HeadShape) -> None:
    """Every operation in its variants, on fixed random inputs of a few rows and `heads`. Raises SelfTestError."""
    twin = ReferenceOperations(torch.device("cpu"))
    for name, result in _results(heads).items():
        found, wanted = result(operations).float(), result(twin).float()
        deviation = float((found - wanted).abs().max() / wanted.abs().max())
        if not deviation <= (_FP8_TOLERANCE if "fp8" in name else _TOLERANCE):  # written so that NaN fails
            raise SelfTestError(f"{name} deviates by {deviation:.3g} of the largest value")


def _results(heads: HeadShape) -> dict[str, Result]:
    """What is compared, by its name. Inputs are drawn once, so that both sides see the same."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).bfloat16().float()

    x, update, norm, bias = random(_ROWS, _SIZE), random(_ROWS, _SIZE), random(_SIZE), random(_OUTPUTS)
    matrices: dict[str, Matrix] = {"float": random(_OUTPUTS, _SIZE)}
    matrices |= {f"{bits} bit": random_quantised(bits, _OUTPUTS, _SIZE, generator) for bits in (4, 8)}
    token_ids = torch.randint(_OUTPUTS, (_ROWS,), generator=generator)
    # Products have a kernel for prompts' rows, one for few generated tokens' and, with AMX, one for many: the batch has
    # four of the first and nine of the last, `logits` has a few.
    batch, few = TokenBatch([SequenceRows(8, _ROWS, [0, 1], 12)], torch.device("cpu")), 5

    def linear(matrix: Matrix) -> Result:
        return lambda o: o.linear(x.to(o.dtype), o.pack([matrix], bias), batch)

    def logits(matrix: Matrix, softcap: float | None = None) -> Result:
        return lambda o: o.logits(x.to(o.dtype), o.pack_table(matrix), few, softcap)

    def embedding(matrix: Matrix) -> Result:
        return lambda o: o.embed(token_ids, o.pack_table(matrix), 0.5)

    def gated(activation: Activation) -> Result:
        return lambda o: o.gated(x.to(o.dtype), activation)

    def attention(rule: AttentionRule, norms: HeadNorms | None = None, dtype: CacheDtype = "auto") -> Result:
        return lambda o: attention_of(o, heads, rule, norms, dtype)

    results = {
        "add_rms_norm": lambda o: o.add_rms_norm(x.clone(), update.to(o.dtype), norm, 1e-5),
        "rms_norm": lambda o: o.rms_norm(x.to(o.dtype), norm, 1e-5),
        "gated (silu)": gated("silu"),
        "gated (gelu_tanh)": gated("gelu_tanh"),
        "logits with softcap": logits(matrices["float"], 20.0),
    }
    for kind, matrix in matrices.items():
        results |= {f"linear ({kind})": linear(matrix), f"logits ({kind})": logits(matrix)}
        results[f"embed ({kind})"] = embedding(matrix)
    gates = [(random(64, _SIZE), random(64, _SIZE)) for _ in range(3)]
    down, scores = [random(_SIZE, 64) for _ in range(3)], random(_ROWS, 3)
    rule = ExpertRule(top_k=2, normalise=True, activation="silu")
    results["experts"] = lambda o: o.experts(
        x.to(o.dtype), scores.to(o.dtype), o.pack_experts(gates, down), rule, batch
    )
    scale = heads.head_dim**-0.5
    norms = HeadNorms(random(heads.head_dim).abs(), random(heads.head_dim).abs(), 1e-5)
    results["rope_and_store and paged_attention"] = attention(AttentionRule(scale))
    results["attention with norms, softcap and window"] = attention(AttentionRule(scale, 10.0, 20), norms)
    results["attention over int8"] = attention(AttentionRule(scale), dtype="int8")
    results["attention over fp8"] = attention(AttentionRule(scale), dtype="fp8")
    wide, choices = 3 * random(_ROWS, _VOCABULARY), _choices_of_all_kinds()
    results["argmax"] = lambda o: _one_hot(o.sampling.argmax(wide))
    results["choice of tokens"] = lambda o: _one_hot(o.sampling.choose(wide, choices))
    results["logprobs"] = lambda o: torch.from_numpy(o.sampling.logprobs(wide, token_ids.tolist(), 5).top)
    return results


def _one_hot(token_ids: list[int]) -> torch.Tensor:
    """[R, V]: an id that is nearly right deviates as much as any other."""
    return (torch.tensor(token_ids)[:, None] == torch.arange(_VOCABULARY)).float()


def _choices_of_all_kinds() -> RowChoices:
    """Greedy, top-k, top-p and min-p, in turns."""
    kind = np.arange(_ROWS) % 4
    return RowChoices(
        temperature=np.where(kind == 0, 0, 1).astype(np.float32),
        top_k=np.where(kind == 1, 7, 0).astype(np.int32),
        top_p=np.where(kind == 2, 0.8, 1).astype(np.float32),
        min_p=np.where(kind == 3, 0.1, 0).astype(np.float32),
        uniform=(np.arange(_ROWS) + 0.5) / _ROWS,
    )


def random_quantised(bits: int, outputs: int, inputs: int, generator: torch.Generator) -> QuantisedMatrix:
    """Of about the size of random floats."""
    codes = torch.randint(1 << bits, (outputs, inputs), dtype=torch.uint8, generator=generator)
    scales = (torch.rand(outputs, inputs // GROUP_SIZE, generator=generator) + 0.5) * 4 / (1 << bits)
    return QuantisedMatrix(bits, codes, scales.half(), (-2 * torch.ones_like(scales)).half())


def attention_of(
    operations: Operations,
    heads: HeadShape,
    rule: AttentionRule,
    norms: HeadNorms | None = None,
    dtype: CacheDtype = "auto",
) -> torch.Tensor:
    """The second step's rows of two sequences: a token after a prompt of 21; the rest of a prompt of 40, and two."""
    generator = torch.Generator().manual_seed(1)
    cache: KVCache = operations.new_cache(1, 6, heads, dtype)
    angles = torch.outer(torch.arange(64.0), torch.rand(heads.head_dim // 2, generator=generator))
    tables = ((4, 1, 3), (0, 5, 2))
    out = torch.empty(0)
    for step in (((0, 21), (0, 3)), ((21, 1), (3, 39))):  # (start, number of tokens) of each sequence
        parts = zip(step, tables, (21, 40), strict=True)
        batch = TokenBatch([SequenceRows(*part, ids, prompt) for part, ids, prompt in parts], operations.device)
        qkv = torch.randn(batch.num_rows, heads.qkv_size, generator=generator).to(operations.dtype)
        operations.rope_and_store(qkv, RotaryTables(angles.cos(), angles.sin()), batch, cache, 0, heads, norms)
        out = operations.paged_attention(qkv, batch, cache, 0, heads, rule)
    return out
