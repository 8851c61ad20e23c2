"""The torch twin of every operation: runs on any device, and is what faster kernels are tested against.

On a CPU everything is float32, and shapes are fixed so that no row's bits depend on the batch: products run over rows
padded to a multiple of ROWS, attention over tiles that depend on positions alone.
"""

import torch
from torch.nn import functional

from kernels.batch import BLOCK_SIZE, TILE, TileGroup, TokenBatch
from kernels.operations import HeadShape, KVCache, PackedWeight

ROWS = 8
_MAX_GATHERED = 1 << 15  # keys of all tiles gathered at once: bounds the scratch memory
_MAX_OUTPUTS = 8192  # a vocabulary's product runs in slices: MKL is several times slower on the whole


class ReferenceOperations:
    """Implements `Operations` in plain torch; float32 on a CPU, bfloat16 elsewhere."""

    name = "reference"

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.dtype = torch.float32 if device.type == "cpu" else torch.bfloat16

    def supports(self, heads: HeadShape, hidden_size: int, intermediate_size: int) -> bool:
        return True

    def pack(self, weight: torch.Tensor) -> PackedWeight:
        return PackedWeight(weight.to(self.device, self.dtype).contiguous(), *weight.shape)

    def linear(self, x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
        rows = len(x)
        padded = functional.pad(x, (0, 0, 0, -rows % ROWS))
        if weight.num_outputs <= _MAX_OUTPUTS:
            return functional.linear(padded, weight.data)[:rows]
        slices = [functional.linear(padded, part) for part in weight.data.split(_MAX_OUTPUTS)]
        return torch.cat(slices, dim=1)[:rows]

    def logits(self, x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
        return self.linear(x, weight).float()

    def add_rms_norm(
        self, residual: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        if update is not None:
            residual += update
        # A row's mean must not depend on how many rows there are: torch splits a lone row's sum over threads.
        squares = residual.square()
        if residual.shape[1] % 2:
            squares = functional.pad(squares, (0, 1))
        squares = squares.view(len(residual), 2, -1).sum(-1)  # [T, 2]
        scale = torch.rsqrt((squares[:, :1] + squares[:, 1:]) / residual.shape[1] + eps)
        return (residual * scale * weight).to(self.dtype)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=1)
        return functional.silu(gate) * up

    def new_cache(self, num_layers: int, num_blocks: int, heads: HeadShape) -> KVCache:
        shape = (num_blocks, heads.num_kv_heads, BLOCK_SIZE * heads.head_dim)
        keys, values = (
            [torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in range(num_layers)] for _ in range(2)
        )
        return KVCache(keys, values)

    def rope_and_store(
        self,
        qkv: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        batch: TokenBatch,
        cache: KVCache,
        layer: int,
        heads: HeadShape,
    ) -> None:
        per_head = qkv.view(len(qkv), -1, heads.head_dim)  # [T, H + 2 KV, D]
        rotated = per_head[:, : heads.num_heads + heads.num_kv_heads]
        c, s = (table[batch.positions.long()][:, None] for table in (cos, sin))  # [T, 1, D/2]
        low, high = rotated.float().chunk(2, dim=-1)
        rotated.copy_(torch.cat([low * c - high * s, high * c + low * s], dim=-1))
        block, offset = batch.slots // BLOCK_SIZE, batch.slots % BLOCK_SIZE
        keys, values = per_head[:, heads.num_heads :].chunk(2, dim=1)  # [T, KV, D]
        for kind, fresh in ((cache.keys[layer], keys), (cache.values[layer], values)):
            kind.view(-1, heads.num_kv_heads, BLOCK_SIZE, heads.head_dim)[block, :, offset] = fresh

    def paged_attention(
        self, qkv: torch.Tensor, batch: TokenBatch, cache: KVCache, layer: int, heads: HeadShape
    ) -> torch.Tensor:
        width = heads.num_heads * heads.head_dim
        queries = functional.pad(qkv[:, :width], (0, 0, 0, 1))  # one more row, for the padding of tiles
        out = torch.empty_like(queries)
        keys, values = (
            kind.view(-1, heads.num_kv_heads, BLOCK_SIZE, heads.head_dim)
            for kind in (cache.keys[layer], cache.values[layer])
        )
        for group in batch.tiles:
            at_once = max(1, _MAX_GATHERED // (group.blocks.shape[1] * BLOCK_SIZE))
            for part in range(0, len(group.rows), at_once):
                tiles = group.part(part, part + at_once)
                out[tiles.rows.flatten()] = _attend(queries, keys, values, tiles, heads)
        return out[:-1]


def _attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, tiles: TileGroup, heads: HeadShape
) -> torch.Tensor:
    """queries [T + 1, H * D] of some tiles -> [n * TILE, H * D]."""
    n, group_size = len(tiles.rows), heads.num_heads // heads.num_kv_heads
    q = queries[tiles.rows].view(n, TILE, heads.num_kv_heads, group_size, heads.head_dim)
    q = q.permute(0, 2, 1, 3, 4).reshape(n, heads.num_kv_heads, TILE * group_size, heads.head_dim).float()
    k, v = (
        kind[tiles.blocks].transpose(1, 2).reshape(n, heads.num_kv_heads, -1, heads.head_dim).float()
        for kind in (keys, values)
    )  # [n, KV, num_keys, D]
    # A key that isn't seen has weight 0, but what an earlier sequence left in its slot may be NaN, and 0 * NaN is NaN.
    v[:, :, -tiles.unwritten.shape[1] :].masked_fill_(tiles.unwritten[:, None, :, None], 0.0)
    scores = q @ k.transpose(2, 3) * heads.head_dim**-0.5
    hidden = torch.arange(k.shape[2], device=k.device) > tiles.last_key[:, :, None]  # [n, TILE, num_keys]
    scores.masked_fill_(hidden.repeat_interleave(group_size, dim=1)[:, None], float("-inf"))
    out = torch.softmax(scores, dim=-1) @ v  # [n, KV, TILE * G, D]
    out = out.view(n, heads.num_kv_heads, TILE, group_size, heads.head_dim).permute(0, 2, 1, 3, 4)
    return out.reshape(n * TILE, -1).to(queries.dtype)
