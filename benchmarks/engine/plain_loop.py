"""A loop as one writes it on a first day, one request after the other: what any engine should be measured against."""

import torch
from torch.nn import functional

from engine.loader.checkpoint import load_checkpoint


class PlainLoop:
    """A Llama decoder in eager bfloat16 PyTorch, with `torch.cat` on the cache."""

    def __init__(self, path: str) -> None:
        checkpoint = load_checkpoint(path)
        c = self.config = checkpoint.config
        get = checkpoint.weights.get
        q, kv, h, i = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim, c.hidden_size, c.intermediate_size
        shapes = {
            "self_attn.q_proj": (q, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h),
            "self_attn.o_proj": (h, q), "mlp.gate_proj": (i, h), "mlp.up_proj": (i, h), "mlp.down_proj": (h, i),
            "input_layernorm": (h,), "post_attention_layernorm": (h,),
        }  # fmt: skip
        self.layers = [
            {name: get(f"model.layers.{n}.{name}.weight", shape).bfloat16() for name, shape in shapes.items()}
            for n in range(c.num_layers)
        ]
        self.embedding = get("model.embed_tokens.weight", (c.vocab_size, h)).bfloat16()
        head = "lm_head.weight"
        self.head = get(head, (c.vocab_size, h)).bfloat16() if head in checkpoint.weights else self.embedding
        self.norm = get("model.norm.weight", (h,)).bfloat16()
        inverse = c.rope.theta ** (-torch.arange(0, c.head_dim, 2) / c.head_dim)
        self.angles = torch.outer(torch.arange(c.context_length), inverse).repeat(1, 2)  # [context, head_dim]

    @torch.inference_mode()
    def generate(self, prompt: list[int], num_tokens: int) -> list[int]:
        """Greedy, ignoring end-of-sequence tokens."""
        cache: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * len(self.layers)
        answer: list[int] = []
        step = prompt
        for start in [0, *range(len(prompt), len(prompt) + num_tokens - 1)]:
            answer.append(int(self._forward(torch.tensor(step), start, cache).argmax()))
            step = answer[-1:]
        return answer

    def _forward(self, ids: torch.Tensor, start: int, cache: list) -> torch.Tensor:  # type: ignore[type-arg]
        c = self.config
        x = self.embedding[ids]  # [T, hidden]
        angles = self.angles[start : start + len(ids)]
        cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()

        def heads(y: torch.Tensor, count: int, rotate: bool) -> torch.Tensor:
            y = y.view(len(ids), count, c.head_dim).transpose(0, 1)  # [heads, T, head_dim]
            left, right = y.chunk(2, dim=-1)
            return y * cos + torch.cat([-right, left], dim=-1) * sin if rotate else y

        for n, w in enumerate(self.layers):
            y = functional.rms_norm(x, (c.hidden_size,), w["input_layernorm"], c.rms_norm_eps)
            q = heads(functional.linear(y, w["self_attn.q_proj"]), c.num_heads, True)
            k = heads(functional.linear(y, w["self_attn.k_proj"]), c.num_kv_heads, True)
            v = heads(functional.linear(y, w["self_attn.v_proj"]), c.num_kv_heads, False)
            if cache[n] is not None:
                k, v = torch.cat([cache[n][0], k], dim=1), torch.cat([cache[n][1], v], dim=1)
            cache[n] = k, v
            y = functional.scaled_dot_product_attention(
                q[None], k[None], v[None], is_causal=len(ids) > 1, enable_gqa=True
            )[0]
            x = x + functional.linear(y.transpose(0, 1).reshape(len(ids), -1), w["self_attn.o_proj"])
            y = functional.rms_norm(x, (c.hidden_size,), w["post_attention_layernorm"], c.rms_norm_eps)
            gated = functional.silu(functional.linear(y, w["mlp.gate_proj"])) * functional.linear(y, w["mlp.up_proj"])
            x = x + functional.linear(gated, w["mlp.down_proj"])
        return functional.linear(functional.rms_norm(x[-1], (c.hidden_size,), self.norm, c.rms_norm_eps), self.head)
