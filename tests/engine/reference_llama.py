"""The slow twin of the engine's Llama: float32, plain torch, no cache, written from the model's definition.

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
    def logits(self, prompts: list[list[int]], last: int) -> torch.Tensor:
        """[prompts, last, vocab]: scores of the token after each of the last so many tokens of each prompt.

        The rows of all prompts go through the products together; each prompt attends to itself alone.
        """
        lengths = [len(prompt) for prompt in prompts]
        embedding = self.tensors["token_embd.weight"]
        x = embedding[[token for prompt in prompts for token in prompt]]
        for layer in range(int(self.figure("block_count"))):
            x = x + self.attention(f"blk.{layer}.", self.norm(x, f"blk.{layer}.attn_norm.weight"), lengths)
            x = x + self.feed_forward(f"blk.{layer}.", self.norm(x, f"blk.{layer}.ffn_norm.weight"))
        x = torch.stack([rows[-last:] for rows in x.split(lengths)])
        return self.norm(x, "output_norm.weight") @ self.tensors.get("output.weight", embedding).T

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        mean_square = (x * x).mean(dim=-1, keepdim=True)
        return x / torch.sqrt(mean_square + self.figure("attention.layer_norm_rms_epsilon")) * self.tensors[name]

    def attention(self, prefix: str, x: torch.Tensor, lengths: list[int]) -> torch.Tensor:
        qkv = [(x @ self.tensors[f"{prefix}attn_{name}.weight"].T).split(lengths) for name in "qkv"]
        heads = torch.cat([self.heads(*rows) for rows in zip(*qkv, strict=True)])
        return heads @ self.tensors[f"{prefix}attn_output.weight"].T

    def heads(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        num_heads, num_kv_heads = int(self.figure("attention.head_count")), int(self.figure("attention.head_count_kv"))
        q = self.rotate(q.view(len(q), num_heads, -1))
        k = self.rotate(k.view(len(q), num_kv_heads, -1)).repeat_interleave(num_heads // num_kv_heads, dim=1)
        v = v.view(len(q), num_kv_heads, -1).repeat_interleave(num_heads // num_kv_heads, dim=1)
        scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(q.shape[2])
        scores += torch.full((len(q), len(q)), -math.inf).triu(1)
        return torch.einsum("hij,jhd->ihd", torch.softmax(scores, dim=-1), v).reshape(len(q), -1)

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
