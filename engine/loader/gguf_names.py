"""How GGUF files name what the models here ask for by Hugging Face's names, and what llama.cpp's converter does to it.

Names: gguf-py's tensor_mapping.py; changes: convert_hf_to_gguf.py and its conversion/*.py. Knows no files.
"""

import re

import torch

_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",  # Phi 3: gate and up are one matrix under up's name
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
}
_SANDWICH = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_EXPERTS = {
    "gate_proj": "ffn_gate_exps",
    "up_proj": "ffn_up_exps",
    "down_proj": "ffn_down_exps",
    "w1": "ffn_gate_exps",
    "w3": "ffn_up_exps",
    "w2": "ffn_down_exps",
}
_IN_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_IN_EXPERT = re.compile(r"(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(.+)")
_GEMMA = ("gemma2", "gemma3")
_NEIGHBOURS_ROTATED = ("llama", "mistral", "mixtral")  # the others are rotated by halves in llama.cpp, too


def gguf_name(architecture: str, name: str) -> tuple[str, int | None]:
    """GGUF's name; and the number of the expert, where GGUF holds the matrices of all as one tensor."""
    stem, _, kind = name.rpartition(".")  # kind: weight or bias
    layer = _IN_LAYER.fullmatch(stem)
    if layer is None:
        return f"{_TOP.get(stem, stem)}.{kind}", None
    if expert := _IN_EXPERT.fullmatch(layer[2]):
        return f"blk.{layer[1]}.{_EXPERTS.get(expert[2], expert[2])}.{kind}", int(expert[1])
    names = _LAYER | _SANDWICH if architecture in _GEMMA else _LAYER
    return f"blk.{layer[1]}.{names.get(layer[2], layer[2])}.{kind}", None


def holds_sum_with_one(architecture: str, name: str) -> bool:
    """Gemma's norms are the distance from 1 in Hugging Face's files, and the whole in GGUF's."""
    return architecture in _GEMMA and name.endswith("norm.weight")


def row_order(architecture: str, name: str, num_rows: int, head_dim: int) -> torch.Tensor | None:
    """Where to find the rows that the converter keeps in llama.cpp's own order; None if it keeps them as they are."""
    if architecture not in _NEIGHBOURS_ROTATED or not re.search(r"\.[qk]_proj\.(weight|bias)$", name):
        return None
    return rotary_row_order(num_rows, num_rows // head_dim)


def rotary_row_order(num_rows: int, num_heads: int) -> torch.Tensor:
    """[num_rows] int64: the index that undoes convert_hf_to_gguf.py's reordering of Q and K rows.

    llama.cpp rotates neighbours (0, 1), (2, 3), ...; Hugging Face rotates halves (0, d/2), (1, d/2 + 1), ...
    Inside each head the converter interleaved the two halves; here they are parted again.
    """
    return torch.arange(num_rows).view(num_heads, -1, 2).transpose(1, 2).reshape(-1)
