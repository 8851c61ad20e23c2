"""A small random model of each family, made by transformers; and a model of ours with a cache, to be run by hand."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models

from engine.layers.decoder import Decoder
from engine.loader.checkpoint import Checkpoint
from engine.models.config import ModelConfig
from engine.models.registry import build_model
from engine.tokenizer.vocabulary import byte_alphabet
from kernels.batch import BLOCK_SIZE, SequenceRows, TokenBatch
from kernels.operations import HeadShape, ModelShape, Operations

WINDOW = 24
_COMMON = {
    "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "head_dim": 32, "max_position_embeddings": 256, "bos_token_id": None,
    "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
_WINDOWS = {"sliding_window": WINDOW}
_TWO_HEADS = {
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}  # Phi 3 has no head_dim of its own
_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "norm_topk_prob": True}
_LINEAR = {"rope_type": "linear", "factor": 2.0}
_TRAINED = {"original_max_position_embeddings": 64}
_LLAMA3 = _TRAINED | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_YARN = _TRAINED | {"type": "yarn", "factor": 4.0}
_LONGROPE = {
    "type": "longrope",
    "short_factor": [1 + i / 8 for i in range(8)],
    "long_factor": [2.0 + i for i in range(8)],
}
_GEMMA = _WINDOWS | {"query_pre_attn_scalar": 20}

# name -> transformers' name, and what its config says beyond the common figures
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": True}),
    "llama with biases": ("Llama", {"attention_bias": True, "mlp_bias": True, "rope_scaling": _LINEAR}),
    "llama 3": ("Llama", {"rope_scaling": _LLAMA3, "rope_theta": 500000.0}),
    "qwen2": ("Qwen2", {}),
    "qwen2 with windows": ("Qwen2", _WINDOWS | {"use_sliding_window": True, "max_window_layers": 2}),
    "qwen2 with yarn": ("Qwen2", {"rope_scaling": _YARN}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True}),
    "mistral": ("Mistral", _WINDOWS),
    "gemma2": ("Gemma2", _GEMMA | {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0}),
    "gemma3": ("Gemma3", _GEMMA | {"sliding_window_pattern": 3, "rope_scaling": _LINEAR}),
    "phi3": ("Phi3", _TWO_HEADS | _WINDOWS),
    "phi3 with longrope": (
        "Phi3",
        _TWO_HEADS | _TRAINED | {"partial_rotary_factor": 0.5, "rope_scaling": _LONGROPE},
    ),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3 with experts": ("Qwen3Moe", _EXPERTS),
    "qwen3 with experts in one layer": (
        "Qwen3Moe",
        _EXPERTS | {"norm_topk_prob": False, "decoder_sparse_step": 2, "mlp_only_layers": [3]},
    ),
}


def make_family(name: str, folder: Path, **changes: Any) -> Any:
    """Writes the model to the folder, and returns transformers' own, float32. `changes` are to its config."""
    kind, figures = FAMILIES[name]
    config_name = "Gemma3TextConfig" if kind == "Gemma3" else f"{kind}Config"
    config = getattr(transformers, config_name)(**_COMMON | figures | changes)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(len(name))
    with torch.no_grad():
        for parameter_name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if "norm" in parameter_name:
                weight.add_(noise, alpha=0.2)
            elif weight.dim() == 1:
                weight.copy_(noise * 0.5)
            else:  # large enough that attention is not flat, nor logits alike
                weight.copy_(noise * 1.5 / weight.shape[-1] ** 0.5)
    model.save_pretrained(folder)
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(byte_alphabet().values())}, []))
    backend.decoder = decoders.ByteLevel()
    backend.save(str(folder / "tokenizer.json"))
    return model


def shape_of(config: ModelConfig) -> ModelShape:
    heads = HeadShape(config.num_heads, config.num_kv_heads, config.head_dim)
    expert_size = config.experts and config.experts.intermediate_size
    return ModelShape(heads, config.hidden_size, config.intermediate_size, config.num_layers, expert_size)


@dataclass
class Tokens:
    """token_ids[start:] are to be run for sequence `index`; those from num_prompt on were generated."""

    token_ids: list[int]
    num_prompt: int
    start: int = 0
    index: int = 0


class ModelWithCache:
    """For a few sequences of up to num_positions tokens, in blocks that do not lie in order."""

    def __init__(
        self, checkpoint: Checkpoint, operations: Operations, num_positions: int = 256, num_sequences: int = 1
    ) -> None:
        per_sequence = num_positions // BLOCK_SIZE
        blocks = torch.randperm(num_sequences * per_sequence, generator=torch.Generator().manual_seed(0))
        self._operations = operations
        self._blocks: list[list[int]] = blocks.view(num_sequences, per_sequence).tolist()
        self.model: Decoder = build_model(checkpoint.config, checkpoint.weights, operations, num_positions)
        self._cache = operations.new_cache(checkpoint.config.num_layers, len(blocks), self.model.heads)
        max_rows = num_sequences * num_positions
        self._forward = operations.compile(self.model.forward, max_rows=max_rows)
        self._logits = operations.compile(self.model.logits, max_rows=max_rows)

    def logits(self, token_ids: list[int], num_prompt: int, start: int = 0) -> torch.Tensor:
        """Of token_ids[start:], [number of them, vocab] float32."""
        return self.logits_of_all([Tokens(token_ids, num_prompt, start)])

    @torch.inference_mode()
    def logits_of_all(self, sequences: list[Tokens]) -> torch.Tensor:
        """Of the tokens of all sequences, one after another, run as one batch."""
        batch = TokenBatch(
            [
                SequenceRows(each.start, len(each.token_ids) - each.start, self._blocks[each.index], each.num_prompt)
                for each in sequences
            ],
            self._operations.device,
        )
        tokens = torch.tensor([token for each in sequences for token in each.token_ids[each.start :]])
        hidden = self._forward(tokens[torch.from_numpy(batch.order)], batch, self._cache)
        return self._logits(hidden, batch.num_generated)[torch.from_numpy(batch.row_of)]
