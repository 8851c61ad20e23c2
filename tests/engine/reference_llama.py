"""The slow twin of the engine's Llama: float32, plain torch, no cache, no batch, written from the model's definition.

It shares no code with the engine. It reads the file through the `gguf` package and rotates neighbouring elements, as
llama.cpp does, where the engine undoes the file's row order and rotates halves.
"""

import math
from pathlib import Path

import gguf
import torch


class ReferenceLlama:
    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.figures = {key: field.contents() for key, field in reader.fields.items() if key.startswith("llama.")}
        self.tensors = {
            tensor.name: torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())
            for tensor in reader.tensors
        }

    def figure(self, key: str) -> float:
        return self.figures[f"llama.{key}"]

    @torch.inference_mode()
    def logits(self, token_ids: list[int], last: int = 0) -> torch.Tensor:
        """[T, vocab]: row i scores the token after token_ids[: i + 1]. `last` keeps only the last so many rows."""
        embedding = self.tensors["token_embd.weight"]
        x = embedding[token_ids]
        for layer in range(int(self.figure("block_count"))):
            x = x + self.attention(f"blk.{layer}.", self.norm(x, f"blk.{layer}.attn_norm.weight"))
            x = x + self.feed_forward(f"blk.{layer}.", self.norm(x, f"blk.{layer}.ffn_norm.weight"))
        return self.norm(x[-last:], "output_norm.weight") @ self.tensors.get("output.weight", embedding).T

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        mean_square = (x * x).mean(dim=-1, keepdim=True)
        return x / torch.sqrt(mean_square + self.figure("attention.layer_norm_rms_epsilon")) * self.tensors[name]

    def attention(self, prefix: str, x: torch.Tensor) -> torch.Tensor:
        num_heads, num_kv_heads = int(self.figure("attention.head_count")), int(self.figure("attention.head_count_kv"))
        q, k, v = (x @ self.tensors[f"{prefix}attn_{name}.weight"].T for name in "qkv")
        q = self.rotate(q.view(len(x), num_heads, -1))
        k = self.rotate(k.view(len(x), num_kv_heads, -1)).repeat_interleave(num_heads // num_kv_heads, dim=1)
        v = v.view(len(x), num_kv_heads, -1).repeat_interleave(num_heads // num_kv_heads, dim=1)
        scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(q.shape[2])
        scores += torch.full((len(x), len(x)), -math.inf).triu(1)
        heads = torch.einsum("hij,jhd->ihd", torch.softmax(scores, dim=-1), v)
        return heads.reshape(len(x), -1) @ self.tensors[f"{prefix}attn_output.weight"].T

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Each pair of neighbours of x [T, heads, d] turns by position * base ** (-2 i / d): RoFormer, equation 34."""
        frequencies = self.figure("rope.freq_base") ** (-torch.arange(0, x.shape[2], 2) / x.shape[2])
        angles = (torch.arange(len(x))[:, None] * frequencies)[:, None]  # [T, 1, d / 2]
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = even * angles.cos() - odd * angles.sin(), odd * angles.cos() + even * angles.sin()
        return torch.stack(turned, dim=-1).flatten(-2)

    def feed_forward(self, prefix: str, x: torch.Tensor) -> torch.Tensor:
        gate, up, down = (self.tensors[f"{prefix}ffn_{name}.weight"].T for name in ("gate", "up", "down"))
        gated = x @ gate
        return (gated / (1 + torch.exp(-gated)) * (x @ up)) @ down
