"""Operations in bfloat16 over the C++ kernels of this folder: weights packed once, no row depends on another."""

import ctypes
from collections.abc import Callable, Sequence

import torch

from kernels.batch import BLOCK_SIZE, TokenBatch
from kernels.cpu.old.build import load_library
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

_PANEL = 32
_HEAD_DIMS = (32, 64, 96, 128)


class Avx512Operations:
    """Implements `Operations` on a CPU with AVX-512 and its BF16 instructions. Raises KernelUnavailableError."""

    name = "avx512"
    device = torch.device("cpu")
    dtype = torch.bfloat16

    def __init__(self) -> None:
        self._library = load_library()
        self.sampling = ReferenceSampling()
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

    def supports(self, shape: ModelShape) -> bool:
        fits = shape.hidden_size % 16 == 0 and shape.intermediate_size % 16 == 0
        return shape.heads.head_dim in _HEAD_DIMS and fits

    def compile(self, function: Callable[..., torch.Tensor], *, max_rows: int) -> Callable[..., torch.Tensor]:
        return function

    def pack(self, parts: Sequence[Matrix], bias: torch.Tensor | None = None) -> PackedWeight:
        assert bias is None
        weight = torch.cat([dense(part).to(torch.bfloat16) for part in parts])
        outputs, inputs = weight.shape
        rows = torch.nn.functional.pad(weight, (0, 0, 0, -outputs % _PANEL)).contiguous()
        pairs = rows.view(torch.int32).view(-1, _PANEL, inputs // 2)  # two neighbours along the inputs move together
        return PackedWeight(pairs.transpose(1, 2).contiguous(), outputs, inputs)

    def pack_embedding(self, matrix: Matrix) -> PackedWeight:
        return PackedWeight(dense(matrix).to(torch.bfloat16), *matrix.shape)

    def embed(self, token_ids: torch.Tensor, table: PackedWeight, scale: float = 1.0) -> torch.Tensor:
        rows: torch.Tensor = table.data[token_ids].float()
        return rows * scale

    def linear(self, x: torch.Tensor, weight: PackedWeight, batch: TokenBatch) -> torch.Tensor:
        return self._product(self._library.product_bf16, x, weight, torch.bfloat16)

    def logits(
        self, x: torch.Tensor, weight: PackedWeight, num_generated: int, softcap: float | None = None
    ) -> torch.Tensor:
        assert softcap is None
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

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return self.add_rms_norm(x.float(), None, weight, eps)

    def gated(self, gate_up: torch.Tensor, activation: Activation = "silu") -> torch.Tensor:
        assert activation == "silu"
        rows, width = gate_up.shape
        out = torch.empty(rows, width // 2, dtype=torch.bfloat16)
        self._library.silu_mul(gate_up.data_ptr(), out.data_ptr(), rows, width // 2, torch.get_num_threads())
        return out

    def pack_experts(self, gate_up: Sequence[tuple[Matrix, Matrix]], down: Sequence[Matrix]) -> PackedWeight:
        raise NotImplementedError

    def experts(
        self, x: torch.Tensor, scores: torch.Tensor, weight: PackedWeight, rule: ExpertRule, batch: TokenBatch
    ) -> torch.Tensor:
        raise NotImplementedError

    def block_bytes(self, num_layers: int, heads: HeadShape, dtype: CacheDtype) -> int:
        return 2 * num_layers * heads.num_kv_heads * heads.head_dim * BLOCK_SIZE * 2

    def new_cache(self, num_layers: int, num_blocks: int, heads: HeadShape, dtype: CacheDtype = "auto") -> KVCache:
        shape = (num_blocks, heads.num_kv_heads, BLOCK_SIZE * heads.head_dim)

        def room() -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.bfloat16)

        return KVCache(dtype, [(room(), room()) for _ in range(num_layers)])

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
        assert norms is None
        assert rotary.cos.shape[1] * 2 == heads.head_dim
        self._library.rope_and_store(
            qkv.data_ptr(),
            rotary.cos.data_ptr(),
            rotary.sin.data_ptr(),
            batch.positions.data_ptr(),
            batch.slots.data_ptr(),
            cache.layers[layer][0].data_ptr(),
            cache.layers[layer][1].data_ptr(),
            len(qkv),
            heads.num_heads,
            heads.num_kv_heads,
            heads.head_dim,
            torch.get_num_threads(),
        )

    def paged_attention(
        self,
        qkv: torch.Tensor,
        batch: TokenBatch,
        cache: KVCache,
        layer: int,
        heads: HeadShape,
        rule: AttentionRule,
    ) -> torch.Tensor:
        assert rule == AttentionRule(heads.head_dim**-0.5)
        out = torch.empty(len(qkv), heads.num_heads * heads.head_dim, dtype=torch.bfloat16)
        self._library.paged_attention(
            qkv.data_ptr(),
            cache.layers[layer][0].data_ptr(),
            cache.layers[layer][1].data_ptr(),
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
