"""The parts that families build their models of, read from a checkpoint under Hugging Face's names.

What any family may have (biases, windows, softcaps, a scale of its own) is taken from config and file here; what only
some have, they ask for. Nothing that a file asks for is left out in silence: it is done, or refused by name.
"""

import math
from collections.abc import Iterable

import torch

from engine.errors import ModelLoadError
from engine.layers.attention import Attention
from engine.layers.decoder import Decoder, FeedForward, Layer, PreNormLayer
from engine.layers.experts import MixtureOfExperts
from engine.layers.mlp import GatedMLP
from engine.layers.norm import RMSNorm
from engine.layers.rotary import rotary_tables
from engine.loader.checkpoint import Weights
from engine.models.config import ModelConfig
from engine.models.rope import Rope
from kernels.matrix import Matrix
from kernels.operations import (
    Activation,
    AttentionRule,
    ExpertRule,
    HeadNorms,
    HeadShape,
    Operations,
    PackedWeight,
    RotaryTables,
)

_ACTIVATIONS: dict[str, Activation] = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


class Parts:
    """Its methods raise ModelLoadError when a weight is missing or of another shape. `layers`: the layers' numbers."""

    def __init__(self, config: ModelConfig, weights: Weights, operations: Operations, num_positions: int) -> None:
        self.config = config
        self.layers = range(config.num_layers)
        self._weights = weights
        self._operations = operations
        self._num_positions = num_positions
        self._heads = HeadShape(config.num_heads, config.num_kv_heads, config.head_dim)
        self._num_parameters = 0

    def decoder(self, layers: Iterable[Layer], *, norm_plus: float = 0.0, embedding_scale: float = 1.0) -> Decoder:
        """The layers are made one by one, after the embedding, which is the head as well where the model is tied."""
        config, shape = self.config, (self.config.vocab_size, self.config.hidden_size)
        pack = self._operations.pack_table
        embedding = pack(self._matrix("model.embed_tokens.weight", shape))
        tied = "lm_head.weight" not in self._weights if config.tied is None else config.tied
        return Decoder(
            operations=self._operations,
            heads=self._heads,
            embedding=embedding,
            head=embedding if tied else pack(self._matrix("lm_head.weight", shape)),
            layers=list(layers),
            norm=self.norm("model.norm", norm_plus),
            num_parameters=self._num_parameters,  # after the layers, which count theirs
            embedding_scale=embedding_scale,
            logit_softcap=config.logit_softcap,
        )

    def pre_norm_layer(self, index: int, attention: Attention, feed_forward: FeedForward) -> PreNormLayer:
        prefix = f"model.layers.{index}"
        return PreNormLayer(
            self.norm(f"{prefix}.input_layernorm"),
            attention,
            self.norm(f"{prefix}.post_attention_layernorm"),
            feed_forward,
        )

    def norm(self, name: str, plus: float = 0.0) -> RMSNorm:
        """`plus` is added to the weight: Gemma's files hold its distance from 1."""
        weight = self._vector(f"{name}.weight", self.config.hidden_size) + plus
        return RMSNorm(self._operations, weight, self.config.rms_norm_eps)

    def head_norms(self, index: int, plus: float = 0.0) -> HeadNorms:
        prefix, size = f"model.layers.{index}.self_attn", self.config.head_dim
        query, key = (self._vector(f"{prefix}.{name}_norm.weight", size) + plus for name in ("q", "k"))
        return HeadNorms(query, key, self.config.rms_norm_eps)

    def rotary(self, rope: Rope, *, partial: bool = False) -> RotaryTables:
        """`partial`: the family may rotate a part of each head."""
        if rope.dim != self.config.head_dim and not partial:
            raise ModelLoadError(
                f"rope.dimension_count (partial rotary) of {rope.dim} in heads of {self.config.head_dim} "
                f"is not supported in the {self.config.architecture} family; choose another model"
            )
        return rotary_tables(rope, self._num_positions, self._operations.device)

    def attention(
        self,
        index: int,
        rotary: RotaryTables,
        *,
        norms: HeadNorms | None = None,
        bias: bool = False,
        fused: bool = False,
    ) -> Attention:
        """`bias`: Q, K and V must have some. `fused`: the file holds Q, K and V as one matrix."""
        config, heads, prefix = self.config, self._heads, f"model.layers.{index}.self_attn"
        if norms is None and f"{prefix}.q_norm.weight" in self._weights:
            raise ModelLoadError(
                f"tensor {prefix}.q_norm.weight: {config.architecture} has no such norm; the file is of another family"
            )
        q_size, kv_size = heads.num_heads * heads.head_dim, heads.num_kv_heads * heads.head_dim
        split = {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}
        qkv = {f"{prefix}.{name}": rows for name, rows in ({"qkv_proj": heads.qkv_size} if fused else split).items()}
        rule = AttentionRule(
            scale=(config.query_scale_size or heads.head_dim) ** -0.5,
            softcap=config.attention_softcap,
            window=config.window(index),
        )
        return Attention(
            self._operations,
            index,
            heads,
            self._linear(qkv, config.hidden_size, bias or config.attention_bias),
            self._linear({f"{prefix}.o_proj": config.hidden_size}, q_size, config.attention_bias),
            rotary,
            rule,
            norms,
        )

    def gated_mlp(self, index: int, activation: Activation = "silu", *, fused: bool = False) -> GatedMLP:
        """`activation` is the family's, if the file does not say. `fused`: the file holds gate and up as one matrix."""
        config, prefix = self.config, f"model.layers.{index}.mlp"
        if config.experts is not None and index not in config.experts.dense_layers:
            raise ModelLoadError(f"experts in a model of the {config.architecture} family are not supported")
        size = config.intermediate_size
        split = {f"{prefix}.gate_proj": size, f"{prefix}.up_proj": size}
        gate_up = self._linear(
            {f"{prefix}.gate_up_proj": 2 * size} if fused else split, config.hidden_size, config.mlp_bias
        )
        down = self._linear({f"{prefix}.down_proj": config.hidden_size}, size, config.mlp_bias)
        return GatedMLP(self._operations, gate_up, down, self._activation(activation))

    def experts(self, index: int, block: str, gate: str, up: str, down: str) -> MixtureOfExperts:
        """`block` is the name of the layer's part that has the router and the experts, the others those of matrices."""
        config, prefix = self.config.experts, f"model.layers.{index}.{block}"
        if config is None:
            raise ModelLoadError("the model's config does not say how many experts there are; the file is damaged")
        hidden, size = self.config.hidden_size, config.intermediate_size  # of one expert

        def matrix(expert: int, name: str, rows: int, columns: int) -> Matrix:
            return self._matrix(f"{prefix}.experts.{expert}.{name}.weight", (rows, columns))

        # One by one: a layer's experts together can take more memory than all of them packed.
        gate_up = ((matrix(i, gate, size, hidden), matrix(i, up, size, hidden)) for i in range(config.num))
        packed = self._operations.pack_experts(gate_up, (matrix(i, down, hidden, size) for i in range(config.num)))
        rule = ExpertRule(config.per_token, config.normalise, self._activation("silu"))
        router = self._linear({f"{prefix}.gate": config.num}, hidden, bias=False)
        return MixtureOfExperts(self._operations, router, packed, rule)

    def _activation(self, default: Activation) -> Activation:
        name = self.config.activation
        if name is None:
            return default
        if name not in _ACTIVATIONS:
            raise ModelLoadError(
                f"hidden_act {name!r} is not supported ({', '.join(_ACTIVATIONS)} are); choose another model"
            )
        return _ACTIVATIONS[name]

    def _linear(self, rows_of: dict[str, int], columns: int, bias: bool) -> PackedWeight:
        """The matrices of those names, stacked; with the biases that the file has, or must have by the config."""
        matrices = [self._matrix(f"{name}.weight", (rows, columns)) for name, rows in rows_of.items()]
        if not bias and not any(f"{name}.bias" in self._weights for name in rows_of):
            return self._operations.pack(matrices)
        biases = [self._vector(f"{name}.bias", rows) for name, rows in rows_of.items()]
        return self._operations.pack(matrices, torch.cat(biases))

    def _matrix(self, name: str, shape: tuple[int, int]) -> Matrix:
        self._num_parameters += math.prod(shape)
        return self._weights.matrix(name, shape)

    def _vector(self, name: str, size: int) -> torch.Tensor:
        self._num_parameters += size
        return self._weights.get(name, (size,)).to(self._operations.device, torch.float32)
