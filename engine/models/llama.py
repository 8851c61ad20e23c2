"""The Llama family (Llama 2 and 3, Mistral without a window, SmolLM 1 and 2): Touvron et al. 2023, arXiv:2307.09288.

A model file holds what is this family's own; what families share is in engine/layers.
"""

import torch

from engine.errors import ModelLoadError
from engine.layers.attention import Attention
from engine.layers.mlp import GatedMLP
from engine.layers.rotary import rotary_tables
from engine.loader.checkpoint import Weights
from engine.models.config import ModelConfig
from kernels.batch import TokenBatch
from kernels.matrix import Matrix
from kernels.operations import AttentionRule, HeadShape, KVCache, Operations, RotaryTables


class LlamaModel:
    """Raises ModelLoadError when a weight is missing or of another shape. A missing lm_head is the embedding's."""

    def __init__(self, config: ModelConfig, weights: Weights, operations: Operations, context_length: int) -> None:
        _refuse_what_is_not_here(config)
        self.heads = HeadShape(config.num_heads, config.num_kv_heads, config.head_dim)
        self._operations = operations
        self._eps = config.rms_norm_eps
        device, hidden = operations.device, config.hidden_size
        embedding = weights.matrix("model.embed_tokens.weight", (config.vocab_size, hidden))
        tied = "lm_head.weight" not in weights
        self._embedding = operations.pack_embedding(embedding)
        self._head = operations.pack(
            [embedding if tied else weights.matrix("lm_head.weight", (config.vocab_size, hidden))]
        )
        factors = weights.get("rope_factors", (config.head_dim // 2,)) if "rope_factors" in weights else None
        cos, sin = rotary_tables(config.head_dim, config.rope_theta, context_length, config.rope_scaling, factors)
        rotary = RotaryTables(cos.to(device), sin.to(device))
        self._layers = [LlamaLayer(config, weights, operations, index, rotary) for index in range(config.num_layers)]
        self._norm = _norm(weights, "model.norm.weight", hidden, device)
        per_layer = hidden * (self.heads.qkv_size + config.num_heads * config.head_dim + 3 * config.intermediate_size)
        self.num_parameters = (
            config.vocab_size * hidden * (1 if tied else 2) + hidden + config.num_layers * (per_layer + 2 * hidden)
        )

    def forward(self, token_ids: torch.Tensor, batch: TokenBatch, cache: KVCache) -> torch.Tensor:
        """token_ids [T] int64 -> [T, hidden] in the operations' dtype, after the last norm."""
        residual = self._operations.embed(token_ids, self._embedding)  # [T, hidden] float32
        update = None
        for layer in self._layers:
            update = layer(residual, update, batch, cache)
        return self._operations.add_rms_norm(residual, update, self._norm, self._eps)

    def logits(self, x: torch.Tensor, num_generated: int) -> torch.Tensor:
        """Rows of `forward`'s result [R, hidden], those of generated tokens first -> [R, vocab] float32."""
        return self._operations.logits(x, self._head, num_generated)


class LlamaLayer:
    """Pre-norm attention and feed-forward. What a layer adds to the residual is added by the next norm, in one pass."""

    def __init__(
        self, config: ModelConfig, weights: Weights, operations: Operations, index: int, rotary: RotaryTables
    ) -> None:
        hidden, heads = config.hidden_size, HeadShape(config.num_heads, config.num_kv_heads, config.head_dim)
        prefix = f"model.layers.{index}."

        def weight(name: str, rows: int, columns: int) -> Matrix:
            return weights.matrix(f"{prefix}{name}.weight", (rows, columns))

        q_size, kv_size = heads.num_heads * heads.head_dim, heads.num_kv_heads * heads.head_dim
        q = weight("self_attn.q_proj", q_size, hidden)
        k = weight("self_attn.k_proj", kv_size, hidden)
        v = weight("self_attn.v_proj", kv_size, hidden)
        output = weight("self_attn.o_proj", hidden, q_size)
        gate = weight("mlp.gate_proj", config.intermediate_size, hidden)
        up = weight("mlp.up_proj", config.intermediate_size, hidden)
        down = weight("mlp.down_proj", hidden, config.intermediate_size)
        self._operations = operations
        self._eps = config.rms_norm_eps
        rule = AttentionRule(scale=config.head_dim**-0.5)
        qkv = operations.pack([q, k, v])
        self._attention = Attention(operations, index, heads, qkv, operations.pack([output]), rotary, rule)
        self._mlp = GatedMLP(operations, operations.pack([gate, up]), operations.pack([down]))
        self._attention_norm = _norm(weights, f"{prefix}input_layernorm.weight", hidden, operations.device)
        self._mlp_norm = _norm(weights, f"{prefix}post_attention_layernorm.weight", hidden, operations.device)

    def __call__(
        self, residual: torch.Tensor, update: torch.Tensor | None, batch: TokenBatch, cache: KVCache
    ) -> torch.Tensor:
        """residual [T, hidden] float32 takes in `update` and the attention's; returns the MLP's update."""
        norm = self._operations.add_rms_norm
        attended = self._attention(norm(residual, update, self._attention_norm, self._eps), batch, cache)
        return self._mlp(norm(residual, attended, self._mlp_norm, self._eps), batch)


def _refuse_what_is_not_here(config: ModelConfig) -> None:
    """What would be computed without, and so wrongly: some files of this family have it."""
    if config.activation != "silu":
        raise ModelLoadError(f"hidden_act {config.activation!r} is not supported (silu is); choose another model")
    if config.biases:
        raise ModelLoadError(f"{config.biases[0]}: linear layers with biases are not supported; choose another model")
    if config.rotary_dim not in (None, config.head_dim):
        raise ModelLoadError(
            f"rope.dimension_count (partial rotary) of {config.rotary_dim} in heads of {config.head_dim} "
            "is not supported; choose another model"
        )


def _norm(weights: Weights, name: str, size: int, device: torch.device) -> torch.Tensor:
    return weights.get(name, (size,)).to(device, torch.float32)
