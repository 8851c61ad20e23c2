"""A GGUF file as a Hugging Face folder in bfloat16, for peers that read no GGUF: the same weights, dequantised."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from engine.loader.checkpoint import load_checkpoint


def export_llama(model: Path, folder: Path) -> Path:
    """`folder`, with config.json, model.safetensors and the tokenizer's files. Llama family only."""
    checkpoint = load_checkpoint(str(model))
    config = checkpoint.config
    if config.architecture != "llama":
        raise SystemExit(f"{model}: only the Llama family can be exported, not {config.architecture}")
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        shapes |= {
            f"{prefix}self_attn.q_proj.weight": (q, hidden),
            f"{prefix}self_attn.k_proj.weight": (kv, hidden),
            f"{prefix}self_attn.v_proj.weight": (kv, hidden),
            f"{prefix}self_attn.o_proj.weight": (hidden, q),
            f"{prefix}mlp.gate_proj.weight": (inner, hidden),
            f"{prefix}mlp.up_proj.weight": (inner, hidden),
            f"{prefix}mlp.down_proj.weight": (hidden, inner),
            f"{prefix}input_layernorm.weight": (hidden,),
            f"{prefix}post_attention_layernorm.weight": (hidden,),
        }
    tied = "lm_head.weight" not in checkpoint.weights
    if not tied:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: checkpoint.weights.get(name, shape).to(torch.bfloat16) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer = checkpoint.tokenizer
    described = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "intermediate_size": inner, "num_hidden_layers": config.num_layers, "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads, "head_dim": config.head_dim, "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context_length, "rope_theta": config.rope.theta,
        "rms_norm_eps": config.rms_norm_eps, "hidden_act": "silu", "tie_word_embeddings": tied,
        "bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id, "dtype": "bfloat16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(described))
    tokenizer.save(folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder
