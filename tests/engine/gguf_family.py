"""Writes a model folder as the GGUF file that llama.cpp's convert_hf_to_gguf.py makes of it.

Names are the gguf package's own; Q and K rows are interleaved where llama.cpp rotates neighbours, 1 is added to Gemma's
norms, experts are stacked, and Llama 3's and Phi's rope scalings become tensors.
"""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf.constants import MODEL_ARCH, GGUFValueType
from gguf.constants import GGMLQuantizationType as Kind
from safetensors.torch import load_file

from engine.tokenizer.vocabulary import byte_alphabet

_ARCHITECTURES = {
    "llama": MODEL_ARCH.LLAMA,
    "mistral": MODEL_ARCH.LLAMA,
    "mixtral": MODEL_ARCH.LLAMA,
    "qwen2": MODEL_ARCH.QWEN2,
    "qwen3": MODEL_ARCH.QWEN3,
    "qwen3_moe": MODEL_ARCH.QWEN3MOE,
    "gemma2": MODEL_ARCH.GEMMA2,
    "gemma3_text": MODEL_ARCH.GEMMA3,
    "phi3": MODEL_ARCH.PHI3,
}
Tensors = dict[str, npt.NDArray[np.float32]]


def write_gguf(folder: Path, path: Path, kind: Kind = Kind.F32, **changes: object) -> Tensors:
    """Matrices are stored as `kind`; returns the folder's tensors with the rounding that this brings.

    `changes` are to the architecture's figures, with __ for the dots in a key; None leaves one out.
    """
    raw = json.loads((folder / "config.json").read_text())
    tensors = {name: weight.numpy() for name, weight in load_file(folder / "model.safetensors").items()}
    architecture = _ARCHITECTURES[raw["model_type"]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    _write_figures(writer, raw, architecture)
    for key, value in changes.items():
        name = f"{gguf.MODEL_ARCH_NAMES[architecture]}.{key.replace('__', '.')}"
        writer.kv_data[0].pop(name, None)
        if value is not None:
            writer.add_key_value(name, value, GGUFValueType.get_type(value))
    _write_tokenizer(writer, raw["vocab_size"])
    for name, factors in _rope_factors(raw):
        writer.add_tensor(name, factors)
    rounded = {name: _rounded(weight, kind) for name, weight in tensors.items()}
    name_of = gguf.get_tensor_name_map(architecture, raw["num_hidden_layers"])
    for name, weight in _converted(rounded, raw, architecture):
        stored = name_of.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        if weight.ndim == 1 or kind == Kind.F32:
            writer.add_tensor(stored, np.ascontiguousarray(weight))
        else:
            writer.add_tensor(stored, gguf.quants.quantize(np.ascontiguousarray(weight), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return rounded


def _rounded(weight: npt.NDArray[np.float32], kind: Kind) -> npt.NDArray[np.float32]:
    if weight.ndim == 1 or kind == Kind.F32:
        return weight
    return gguf.quants.dequantize(gguf.quants.quantize(weight, kind), kind).reshape(weight.shape)


def _converted(
    tensors: Tensors, raw: dict[str, Any], architecture: MODEL_ARCH
) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """Under Hugging Face's names, experts' without their numbers."""
    experts: dict[str, list[tuple[int, npt.NDArray[np.float32]]]] = {}
    for name, weight in tensors.items():
        if expert := re.fullmatch(r"(.*\.experts)\.(\d+)\.(.*)", name):
            experts.setdefault(f"{expert[1]}.{expert[3]}", []).append((int(expert[2]), weight))
        elif architecture == MODEL_ARCH.LLAMA and (projection := re.search(r"\.([qk])_proj\.", name)):
            heads = raw["num_attention_heads" if projection[1] == "q" else "num_key_value_heads"]
            halves = weight.reshape(heads, 2, len(weight) // heads // 2, *weight.shape[1:])
            yield name, halves.swapaxes(1, 2).reshape(weight.shape)
        elif architecture in (MODEL_ARCH.GEMMA2, MODEL_ARCH.GEMMA3) and name.endswith("norm.weight"):
            yield name, weight + 1
        else:
            yield name, weight
    for name, matrices in experts.items():
        yield name, np.stack([matrix for _, matrix in sorted(matrices, key=lambda numbered: numbered[0])])


def _write_figures(writer: gguf.GGUFWriter, raw: dict[str, Any], architecture: MODEL_ARCH) -> None:
    head_dim = raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]
    rope = raw["rope_parameters"]
    far = rope.get("full_attention", rope)
    writer.add_block_count(raw["num_hidden_layers"])
    writer.add_context_length(raw["max_position_embeddings"])
    writer.add_embedding_length(raw["hidden_size"])
    writer.add_feed_forward_length(raw["intermediate_size"])
    writer.add_head_count(raw["num_attention_heads"])
    writer.add_head_count_kv(raw["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(raw["rms_norm_eps"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_freq_base(far["rope_theta"])
    writer.add_rope_dimension_count(int(head_dim * far.get("partial_rotary_factor", 1)))
    if far["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(far["rope_type"]))
        writer.add_rope_scaling_factor(far["factor"])
    if "original_max_position_embeddings" in far:
        writer.add_rope_scaling_orig_ctx_len(far["original_max_position_embeddings"])
    if raw.get("sliding_window"):
        writer.add_sliding_window(raw["sliding_window"])
    if architecture == MODEL_ARCH.GEMMA2:
        writer.add_attn_logit_softcapping(raw["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(raw["final_logit_softcapping"])
    if architecture == MODEL_ARCH.GEMMA3:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        writer.add_sliding_window_pattern(raw["sliding_window_pattern"])
    if raw.get("num_local_experts"):
        writer.add_expert_count(raw["num_local_experts"])
        writer.add_expert_used_count(raw["num_experts_per_tok"])
    if raw.get("moe_intermediate_size"):
        writer.add_expert_feed_forward_length(raw["moe_intermediate_size"])
    if far["rope_type"] == "longrope":
        trained = far["original_max_position_embeddings"]
        growth = raw["max_position_embeddings"] / trained
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(growth) / math.log(trained)))


def _rope_factors(raw: dict[str, Any]) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    rope = raw["rope_parameters"]
    if rope.get("rope_type") == "longrope":
        yield "rope_factors_long.weight", np.array(rope["long_factor"], np.float32)
        yield "rope_factors_short.weight", np.array(rope["short_factor"], np.float32)
    if rope.get("rope_type") == "llama3":
        turns = rope["original_max_position_embeddings"] / (2 * np.pi)
        turns = turns * rope["rope_theta"] ** (-np.arange(0, raw["head_dim"], 2) / raw["head_dim"])
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        kept = np.clip((turns - low) / (high - low), 0, 1)
        yield "rope_freqs.weight", (1 / (kept + (1 - kept) / rope["factor"])).astype(np.float32)


def _write_tokenizer(writer: gguf.GGUFWriter, vocab_size: int) -> None:
    tokens = [*byte_alphabet().values(), "ab"]
    tokens += [f"<|{i}|>" for i in range(vocab_size - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 257 + [3] * (vocab_size - 257))
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(vocab_size - 1)
