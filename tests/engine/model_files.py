"""Writes small random Llamas as GGUF files and as folders of safetensors, for the tests that load them."""

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.constants import GGUFValueType
from safetensors.torch import save_file
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from engine.tokenizer.vocabulary import byte_alphabet

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INNER = 64, 2, 2, 1, 32, 96
VOCABULARY = [*byte_alphabet().values(), "ab", "<|end|>"]
SHAPES = {
    "self_attn.q_proj": ("attn_q", HEADS * HEAD_DIM, HIDDEN),
    "self_attn.k_proj": ("attn_k", KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.v_proj": ("attn_v", KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.o_proj": ("attn_output", HIDDEN, HEADS * HEAD_DIM),
    "mlp.gate_proj": ("ffn_gate", INNER, HIDDEN),
    "mlp.up_proj": ("ffn_up", INNER, HIDDEN),
    "mlp.down_proj": ("ffn_down", HIDDEN, INNER),
}


def random_weights() -> dict[str, torch.Tensor]:
    """A small random Llama under Hugging Face's names."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) / 8

    tensors = {
        "model.embed_tokens.weight": random(len(VOCABULARY), HIDDEN) * 8,
        "model.norm.weight": 1 + random(HIDDEN),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name, (_, rows, columns) in SHAPES.items():
            tensors[f"{prefix}{name}.weight"] = random(rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}{name}.weight"] = 1 + random(HIDDEN)
    return tensors


def permute(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """What convert_hf_to_gguf.py does to Q and K."""
    return weight.reshape(num_heads, 2, len(weight) // num_heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(
    path: Path, weights: dict[str, torch.Tensor], head: torch.Tensor | None = None, bias: str = "", **metadata: object
) -> Path:
    """`metadata` (its keys with __ for .) is added, or stands instead of what is written otherwise."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(VOCABULARY)
    writer.add_token_types([1] * (len(VOCABULARY) - 1) + [3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(len(VOCABULARY) - 1)
    for key, value in metadata.items():
        writer.kv_data[0].pop(name := key.replace("__", "."), None)
        writer.add_key_value(name, value, GGUFValueType.get_type(value))
    if bias:
        writer.add_tensor(bias, np.zeros(HIDDEN, np.float32))
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    for layer in range(LAYERS):
        names |= {f"model.layers.{layer}.{hf}": f"blk.{layer}.{name}" for hf, (name, _, _) in SHAPES.items()}
        names[f"model.layers.{layer}.input_layernorm"] = f"blk.{layer}.attn_norm"
        names[f"model.layers.{layer}.post_attention_layernorm"] = f"blk.{layer}.ffn_norm"
    for name, weight in weights.items():
        stored = names[name.removesuffix(".weight")]
        if stored.endswith("attn_q"):
            weight = permute(weight, HEADS)
        if stored.endswith("attn_k"):
            weight = permute(weight, KV_HEADS)
        writer.add_tensor(f"{stored}.weight", weight.numpy())
    if head is not None:
        writer.add_tensor("output.weight", head.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_folder(folder: Path, weights: dict[str, torch.Tensor], shards: int = 1, **config: object) -> Path:
    folder.mkdir(exist_ok=True)
    names = sorted(weights)
    for shard in range(shards):
        save_file(
            {name: weights[name].contiguous() for name in names[shard::shards]},
            folder / f"model-{shard + 1:05}-of-{shards:05}.safetensors",
        )
    figures = {
        "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "intermediate_size": INNER, "vocab_size": len(VOCABULARY),
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "eos_token_id": len(VOCABULARY) - 1,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(figures | config))
    backend = Backend(models.BPE({token: i for i, token in enumerate(VOCABULARY)}, [("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([VOCABULARY[-1]])
    backend.save(str(folder / "tokenizer.json"))
    return folder
