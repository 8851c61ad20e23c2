"""A GGUF file of the Llama family -> Checkpoint. Knows GGUF's names and llama.cpp's row order, no arithmetic."""

import math
import re
from pathlib import Path

import torch

from engine.errors import ModelLoadError
from engine.loader.checkpoint import Checkpoint, expect_shape, refusing_damage
from engine.loader.dequantise import dequantise, matrix
from engine.loader.gguf_file import REMEDY, GGUFFile, GGUFTensor
from engine.models.config import ModelConfig, RopeScaling
from engine.tokenizer import Tokenizer
from kernels.matrix import Matrix, take_rows

# Hugging Face's name inside a layer -> GGUF's
_LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
_TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "rope_factors": "rope_freqs.weight",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")


def load(path: Path) -> Checkpoint:
    """Map the file and read its metadata; weights are dequantised when asked for. Raises ModelLoadError."""
    with refusing_damage(path):
        file = GGUFFile(path)
        config = read_config(file)
        return Checkpoint(
            name=str(file.metadata.get("general.name") or path.stem),
            config=config,
            weights=GGUFWeights(file, config),
            tokenizer=Tokenizer.from_gguf(file.metadata),
            chat_template=file.metadata.get("tokenizer.chat_template"),
        )


def read_config(file: GGUFFile) -> ModelConfig:
    """Raises ModelLoadError, which names the key at fault."""
    architecture = str(file.metadata.get("general.architecture", ""))
    figures = _Figures(file, architecture)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelLoadError(f"{file.path}: tensor token_embd.weight is missing or no matrix; {REMEDY}")
    num_heads = figures.integer("attention.head_count")
    hidden_size = figures.integer("embedding_length")
    head_dim = figures.integer("attention.key_length", hidden_size // max(num_heads, 1))
    return ModelConfig(
        architecture=architecture,
        hidden_size=hidden_size,
        num_layers=figures.integer("block_count"),
        num_heads=num_heads,
        num_kv_heads=figures.integer("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        intermediate_size=figures.integer("feed_forward_length"),
        vocab_size=embedding.shape[0],
        context_length=figures.integer("context_length"),
        rope_theta=figures.number("rope.freq_base", 10000.0),
        rms_norm_eps=figures.number("attention.layer_norm_rms_epsilon"),
        rope_scaling=_rope_scaling(file, architecture, figures),
        biases=tuple(name for name in file.tensors if name.endswith(".bias")),
        rotary_dim=figures.integer("rope.dimension_count", head_dim),
    )


class _Figures:
    """The architecture's own metadata, as numbers."""

    def __init__(self, file: GGUFFile, architecture: str) -> None:
        self._file = file
        self._architecture = architecture

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if value != int(value):
            raise ModelLoadError(f"{self._file.path}: {self._architecture}.{key} is {value}, no whole number; {REMEDY}")
        return int(value)

    def number(self, key: str, default: float | None = None) -> float:
        value = self._file.metadata.get(f"{self._architecture}.{key}", default)
        if value is None:
            raise ModelLoadError(f"{self._file.path}: metadata key {self._architecture}.{key} is missing; {REMEDY}")
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ModelLoadError(
                f"{self._file.path}: {self._architecture}.{key} is {str(value)[:40]!r}, no finite number; {REMEDY}"
            )
        return value


def _rope_scaling(file: GGUFFile, architecture: str, figures: _Figures) -> RopeScaling | None:
    kind = file.metadata.get(f"{architecture}.rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind != "linear":
        raise ModelLoadError(f"{file.path}: rope scaling {kind!r} is not supported; use a model without it")
    return RopeScaling(kind="linear", factor=figures.number("rope.scaling.factor"))


class GGUFWeights:
    """Implements `Weights`. Q and K rows come back in Hugging Face's order (see `rotary_row_order`)."""

    def __init__(self, file: GGUFFile, config: ModelConfig) -> None:
        self._file = file
        self._config = config

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._gguf_name(name) in self._file.tensors

    def get(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        weight, order = dequantise(self._stored(name, shape)), self._row_order(name, shape)
        return weight if order is None else weight[order]

    def matrix(self, name: str, shape: tuple[int, int]) -> Matrix:
        weight, order = matrix(self._stored(name, shape)), self._row_order(name, shape)
        return weight if order is None else take_rows(weight, order)

    def _stored(self, name: str, shape: tuple[int, ...]) -> GGUFTensor:
        stored = self._file.tensors.get(self._gguf_name(name))
        if stored is None:
            raise ModelLoadError(f"{self._file.path}: tensor {self._gguf_name(name)} is missing; {REMEDY}")
        expect_shape(stored.name, stored.shape, shape)
        return stored

    def _row_order(self, name: str, shape: tuple[int, ...]) -> torch.Tensor | None:
        """Where to find the rows that llama.cpp keeps in its own order; None if it keeps them as they are."""
        if name.endswith("q_proj.weight"):
            return rotary_row_order(shape[0], self._config.num_heads)
        if name.endswith("k_proj.weight"):
            return rotary_row_order(shape[0], self._config.num_kv_heads)
        return None

    @staticmethod
    def _gguf_name(name: str) -> str:
        if match := _LAYER.fullmatch(name):
            return f"blk.{match[1]}.{_LAYER_NAMES.get(match[2], match[2])}"
        return _TOP_NAMES.get(name, name)


def rotary_row_order(num_rows: int, num_heads: int) -> torch.Tensor:
    """[num_rows] int64: the index that undoes convert_hf_to_gguf.py's reordering of Q and K rows.

    llama.cpp rotates neighbours (0, 1), (2, 3), ...; Hugging Face rotates halves (0, d/2), (1, d/2 + 1), ...
    Inside each head the converter interleaved the two halves; here they are parted again.
    """
    return torch.arange(num_rows).view(num_heads, -1, 2).transpose(1, 2).reshape(-1)
