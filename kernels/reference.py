"""The torch twin of every operation: runs on any device, and is what faster kernels are tested against.

On a CPU everything is float32, and shapes are fixed so that no row's bits depend on the batch: products run over tiles
of ROWS rows, attention over tiles that depend on positions alone.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn import functional

from kernels import reference_cache
from kernels.batch import BLOCK_SIZE, TILE, TileGroup, TokenBatch
from kernels.matrix import Matrix, dense
from kernels.operations import (
    Activation,
    AttentionRule,
    CacheDtype,
    ExpertRule,
    HeadNorms,
    HeadShape,
    KVCache,
    ModelShape,
    PackedWeight,
    RotaryTables,
)
from kernels.reference_sampling import ReferenceSampling

ROWS = 8
_MAX_GATHERED = 1 << 15  # keys of all tiles gathered at once: bounds the scratch memory
_MAX_OUTPUTS = 8192  # a vocabulary's product runs in slices: MKL is several times slower on the whole


class ReferenceOperations:
    """Implements `Operations` in plain torch; float32 on a CPU, bfloat16 elsewhere."""

    name = "reference"

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        self.sampling = ReferenceSampling()

    def supports(self, shape: ModelShape) -> bool:
        return True

    def compile(self, function: Callable[..., torch.Tensor], *, max_rows: int) -> Callable[..., torch.Tensor]:
        return function

    def packing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def pack(self, parts: Sequence[Matrix], bias: torch.Tensor | None = None) -> PackedWeight:
        weight = torch.cat([dense(part).to(self.device, self.dtype) for part in parts]).contiguous()
        return PackedWeight((weight, None if bias is None else bias.to(self.device, self.dtype)), *weight.shape)

    def pack_table(self, matrix: Matrix) -> PackedWeight:
        return self.pack([matrix])

    def embed(self, token_ids: torch.Tensor, table: PackedWeight, scale: float = 1.0) -> torch.Tensor:
        weight, _ = table.data
        rows: torch.Tensor = weight[token_ids].float()
        return rows * scale

    def linear(self, x: torch.Tensor, weight: PackedWeight, batch: TokenBatch) -> torch.Tensor:
        return _linear(x, *weight.data)

    def logits(
        self, x: torch.Tensor, weight: PackedWeight, num_generated: int, softcap: float | None = None
    ) -> torch.Tensor:
        logits = _linear(x, *weight.data).float()
        return logits if softcap is None else softcap * torch.tanh(logits / softcap)

    def add_rms_norm(
        self, residual: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        if update is not None:
            residual += update
        return self.rms_norm(residual, weight, eps)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return _rms_norm(x.float(), weight, eps).to(self.dtype)

    def gated(self, gate_up: torch.Tensor, activation: Activation = "silu") -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=1)
        return _activated(gate, activation) * up

    def pack_experts(self, gate_up: Iterable[tuple[Matrix, Matrix]], down: Iterable[Matrix]) -> PackedWeight:
        experts = [(self.pack(pair), self.pack([each])) for pair, each in zip(gate_up, down, strict=True)]
        return PackedWeight(experts, experts[0][1].num_outputs, experts[0][0].num_inputs)

    def experts(
        self, x: torch.Tensor, scores: torch.Tensor, weight: PackedWeight, rule: ExpertRule, batch: TokenBatch
    ) -> torch.Tensor:
        shares, chosen = torch.softmax(scores.float(), dim=1).topk(rule.top_k, dim=1)  # [T, top_k]
        if rule.normalise:
            shares = shares / shares.sum(dim=1, keepdim=True)
        # Each token's experts one after another, in the order of their shares: its sum doesn't depend on other tokens.
        parts = torch.zeros(len(x), rule.top_k, weight.num_outputs, device=x.device)
        for index in sorted(set(chosen.flatten().tolist())):
            gate_up, down = weight.data[index]
            row, place = (chosen == index).nonzero(as_tuple=True)
            hidden = self.gated(_linear(x[row], *gate_up.data), rule.activation)
            parts[row, place] = _linear(hidden, *down.data).float() * shares[row, place, None]
        out = parts[:, 0]
        for place in range(1, rule.top_k):
            out = out + parts[:, place]
        return out.to(self.dtype)

    def block_bytes(self, num_layers: int, heads: HeadShape, dtype: CacheDtype) -> int:
        return num_layers * BLOCK_SIZE * reference_cache.token_bytes(heads, dtype, self.dtype)

    def new_cache(self, num_layers: int, num_blocks: int, heads: HeadShape, dtype: CacheDtype = "auto") -> KVCache:
        layers = (
            reference_cache.new_layer(num_blocks, heads, dtype, self.dtype, self.device) for _ in range(num_layers)
        )
        return KVCache(dtype, list(layers))

    def rope_and_store(
        self,
        qkv: torch.Tensor,
        rotary: RotaryTables,
        batch: TokenBatch,
        cache: KVCache,
        layer: int,
        heads: HeadShape,
        norms: HeadNorms | None = None,
    ) -> None:
        per_head = qkv.view(len(qkv), -1, heads.head_dim)  # [T, H + 2 KV, D]
        queries = per_head[:, : heads.num_heads]
        keys, values = per_head[:, heads.num_heads :].chunk(2, dim=1)  # [T, KV, D]
        weights = (None, None) if norms is None else (norms.query, norms.key)
        for part, weight in zip((queries, keys), weights, strict=True):
            x = part.float()
            if norms is not None and weight is not None:
                x = _rms_norm(x.reshape(-1, heads.head_dim), weight, norms.eps).view(x.shape)
            part.copy_(_rotated(x, *(table[batch.positions.long()][:, None] for table in (rotary.cos, rotary.sin))))
        reference_cache.put(cache.layers[layer], cache.dtype, batch.slots, keys, values)

    def paged_attention(
        self,
        qkv: torch.Tensor,
        batch: TokenBatch,
        cache: KVCache,
        layer: int,
        heads: HeadShape,
        rule: AttentionRule,
    ) -> torch.Tensor:
        width = heads.num_heads * heads.head_dim
        queries = functional.pad(qkv[:, :width], (0, 0, 0, 1))  # one more row, for the padding of tiles
        out = torch.empty_like(queries)
        for group in batch.tiles:
            at_once = max(1, _MAX_GATHERED // (group.blocks.shape[1] * BLOCK_SIZE))
            for part in range(0, len(group.rows), at_once):
                tiles = group.part(part, part + at_once)
                keys, values = reference_cache.take(cache.layers[layer], cache.dtype, tiles.blocks)
                out[tiles.rows.flatten()] = _attend(queries, keys, values, tiles, heads, rule)
        return out[:-1]


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    rows = len(x)
    padded = functional.pad(x, (0, 0, 0, -rows % ROWS))
    # MKL sums in another order for 8 rows than for 16, or 64: on a CPU all products have ROWS rows.
    tiles = torch.split(padded, ROWS) if x.device.type == "cpu" else [padded]
    slices = torch.split(weight, _MAX_OUTPUTS)
    y = torch.cat([torch.cat([functional.linear(tile, part) for part in slices], dim=1) for tile in tiles])[:rows]
    return y if bias is None else y + bias


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """A row's mean must not depend on how many rows there are: torch splits a lone row's sum over threads."""
    squares = x.square()
    if x.shape[1] % 2:
        squares = functional.pad(squares, (0, 1))
    squares = squares.view(len(x), 2, -1).sum(-1)  # [T, 2]
    return x * torch.rsqrt((squares[:, :1] + squares[:, 1:]) / x.shape[1] + eps) * weight


def _activated(x: torch.Tensor, activation: Activation) -> torch.Tensor:
    return functional.silu(x) if activation == "silu" else functional.gelu(x, approximate="tanh")


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [T, heads, D] float32; cos, sin [T, 1, rotary_dim / 2]."""
    rotary_dim = 2 * cos.shape[-1]
    low, high = x[..., :rotary_dim].chunk(2, dim=-1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin, x[..., rotary_dim:]], dim=-1)


def _attend(
    queries: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    tiles: TileGroup,
    heads: HeadShape,
    rule: AttentionRule,
) -> torch.Tensor:
    """queries [T + 1, H * D] of some tiles, over k, v [n, KV, num_keys, D] -> [n * TILE, H * D]."""
    n, group_size = len(tiles.rows), heads.num_heads // heads.num_kv_heads
    q = queries[tiles.rows].view(n, TILE, heads.num_kv_heads, group_size, heads.head_dim)
    q = q.permute(0, 2, 1, 3, 4).reshape(n, heads.num_kv_heads, TILE * group_size, heads.head_dim).float()
    # A key that isn't seen has weight 0, but what an earlier sequence left in its slot may be NaN, and 0 * NaN is NaN.
    v[:, :, -tiles.unwritten.shape[1] :].masked_fill_(tiles.unwritten[:, None, :, None], 0.0)
    scores = q @ k.transpose(2, 3) * rule.scale
    if rule.softcap is not None:
        scores = rule.softcap * torch.tanh(scores / rule.softcap)
    key = torch.arange(k.shape[2], device=k.device)
    hidden = key > tiles.last_key[:, :, None]  # [n, TILE, num_keys]
    if rule.window is not None:
        hidden |= key <= tiles.last_key[:, :, None] - rule.window
    scores.masked_fill_(hidden.repeat_interleave(group_size, dim=1)[:, None], float("-inf"))
    out = torch.softmax(scores, dim=-1) @ v  # [n, KV, TILE * G, D]
    out = out.view(n, heads.num_kv_heads, TILE, group_size, heads.head_dim).permute(0, 2, 1, 3, 4)
    return out.reshape(n * TILE, -1).to(queries.dtype)
