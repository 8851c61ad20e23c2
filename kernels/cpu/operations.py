"""Operations in bfloat16 over the C++ kernels of this folder: weights packed once, no row depends on another."""

import ctypes
from collections.abc import Callable

import torch

from kernels.batch import BLOCK_SIZE, TokenBatch
from kernels.cpu.build import load_library
from kernels.operations import HeadShape, KVCache, PackedWeight

_PANEL = 32
_HEAD_DIMS = (32, 64, 96, 128)


class Avx512Operations:
    """Implements `Operations` on a CPU with AVX-512 and its BF16 instructions. Raises KernelUnavailableError."""

    name = "avx512"
    device = torch.device("cpu")
    dtype = torch.bfloat16

    def __init__(self) -> None:
        self._library = load_library()
        pointer, integer = ctypes.c_void_p, ctypes.c_int
        for name, num_pointers, rest in (
            ("product_bf16", 3, [integer] * 4),
            ("product_float", 3, [integer] * 4),
            ("add_rms_norm", 4, [integer, integer, ctypes.c_float, integer]),
            ("silu_mul", 2, [integer] * 3),
            ("rope_and_store", 7, [integer] * 5),
            ("paged_attention", 7, [integer] * 6),
        ):
            function = getattr(self._library, name)
            function.argtypes = [pointer] * num_pointers + rest
            function.restype = None

    def supports(self, heads: HeadShape, hidden_size: int, intermediate_size: int) -> bool:
        return heads.head_dim in _HEAD_DIMS and hidden_size % 16 == 0 and intermediate_size % 16 == 0

    def pack(self, weight: torch.Tensor) -> PackedWeight:
        outputs, inputs = weight.shape
        rows = torch.nn.functional.pad(weight.to(torch.bfloat16), (0, 0, 0, -outputs % _PANEL)).contiguous()
        pairs = rows.view(torch.int32).view(-1, _PANEL, inputs // 2)  # two neighbours along the inputs move together
        return PackedWeight(pairs.transpose(1, 2).contiguous(), outputs, inputs)

    def linear(self, x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
        return self._product(self._library.product_bf16, x, weight, torch.bfloat16)

    def logits(self, x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
        return self._product(self._library.product_float, x, weight, torch.float32)

    def _product(
        self, function: Callable[..., None], x: torch.Tensor, weight: PackedWeight, dtype: torch.dtype
    ) -> torch.Tensor:
        rows = len(x)
        y = torch.empty(rows, weight.num_outputs, dtype=dtype)
        function(
            x.data_ptr(),
            weight.data.data_ptr(),
            y.data_ptr(),
            rows,
            weight.num_outputs,
            weight.num_inputs,
            torch.get_num_threads(),
        )
        return y

    def add_rms_norm(
        self, residual: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        rows, size = residual.shape
        out = torch.empty(rows, size, dtype=torch.bfloat16)
        self._library.add_rms_norm(
            residual.data_ptr(),
            None if update is None else update.data_ptr(),
            weight.data_ptr(),
            out.data_ptr(),
            rows,
            size,
            eps,
            torch.get_num_threads(),
        )
        return out

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        rows, width = gate_up.shape
        out = torch.empty(rows, width // 2, dtype=torch.bfloat16)
        self._library.silu_mul(gate_up.data_ptr(), out.data_ptr(), rows, width // 2, torch.get_num_threads())
        return out

    def new_cache(self, num_layers: int, num_blocks: int, heads: HeadShape) -> KVCache:
        shape = (num_blocks, heads.num_kv_heads, BLOCK_SIZE * heads.head_dim)
        keys, values = ([torch.zeros(shape, dtype=torch.bfloat16) for _ in range(num_layers)] for _ in range(2))
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
        self._library.rope_and_store(
            qkv.data_ptr(),
            cos.data_ptr(),
            sin.data_ptr(),
            batch.positions.data_ptr(),
            batch.slots.data_ptr(),
            cache.keys[layer].data_ptr(),
            cache.values[layer].data_ptr(),
            len(qkv),
            heads.num_heads,
            heads.num_kv_heads,
            heads.head_dim,
            torch.get_num_threads(),
        )

    def paged_attention(
        self, qkv: torch.Tensor, batch: TokenBatch, cache: KVCache, layer: int, heads: HeadShape
    ) -> torch.Tensor:
        out = torch.empty(len(qkv), heads.num_heads * heads.head_dim, dtype=torch.bfloat16)
        self._library.paged_attention(
            qkv.data_ptr(),
            cache.keys[layer].data_ptr(),
            cache.values[layer].data_ptr(),
            batch.block_tables.data_ptr(),
            batch.sequences.data_ptr(),
            batch.positions.data_ptr(),
            out.data_ptr(),
            len(qkv),
            batch.block_tables.shape[1],
            heads.num_heads,
            heads.num_kv_heads,
            heads.head_dim,
            torch.get_num_threads(),
        )
        return out
