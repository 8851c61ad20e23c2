"""Output tokens per second of the engine under N concurrent requests, beside plain loops over the same model.

    python benchmarks/engine_throughput.py --model SmolLM2-135M-Instruct.Q4_1.gguf

Three columns: the engine with all N requests at once; the engine fed one request after the other; and a loop as one
writes it on a first day, one request after the other, in eager bfloat16 PyTorch with a contiguous KV cache. Greedy, all
tokens end to end, prompt included. (Not called engine.py: a script's folder comes first on Python's path.)
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional

from engine.engine import Engine
from engine.loader.checkpoint import load_checkpoint
from engine.types import EngineOptions, GenerationRequest, SamplingParams


class PlainLoop:
    """A Llama decoder in eager PyTorch, with `torch.cat` on the cache: what the engine is measured against."""

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
        inverse = c.rope_theta ** (-torch.arange(0, c.head_dim, 2) / c.head_dim)
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


class Load:
    """Requests with prompts that share nothing, so that no prefix is cached."""

    def __init__(self, engine: Engine, num_prompt: int, num_output: int) -> None:
        self.engine = engine
        self.num_prompt = num_prompt
        self.num_output = num_output
        self._random = random.Random(0)
        self._num_requests = 0

    def prompt(self) -> list[int]:
        return [self._random.randrange(100, self.engine.info.vocab_size) for _ in range(self.num_prompt)]

    def request(self) -> GenerationRequest:
        self._num_requests += 1
        sampling = SamplingParams(temperature=0, max_tokens=self.num_output, ignore_eos=True)
        return GenerationRequest(request_id=str(self._num_requests), prompt_token_ids=self.prompt(), sampling=sampling)

    def together(self, num_requests: int) -> None:
        for _ in range(num_requests):
            self.engine.add_request(self.request())
        while self.engine.has_work:
            self.engine.step()

    def one_by_one(self, num_requests: int) -> None:
        for _ in range(num_requests):
            self.together(1)


def tokens_per_s(run: Callable[[], object], num_tokens: int, repeat: int) -> float:
    """The median of `repeat` runs."""
    rates = []
    for _ in range(repeat):
        start = time.perf_counter_ns()
        run()
        rates.append(num_tokens / (time.perf_counter_ns() - start) * 1e9)
    return statistics.median(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a .gguf file, or a folder with safetensors")
    parser.add_argument("--concurrency", default="1,8,32")
    parser.add_argument("--prompt", type=int, default=128, help="tokens in")
    parser.add_argument("--output", type=int, default=128, help="tokens out")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-loop", action="store_true", help="leave the plain PyTorch loop out")
    args = parser.parse_args()
    engine = Engine(EngineOptions(model=args.model, num_threads=args.threads))
    if args.threads:
        torch.set_num_threads(args.threads)
    load = Load(engine, args.prompt, args.output)
    load.together(2)  # warm up
    sequential = tokens_per_s(lambda: load.one_by_one(2), 2 * args.output, args.repeat)
    plain = 0.0
    if not args.no_loop:
        loop = PlainLoop(args.model)
        loop.generate(load.prompt(), 8)
        plain = tokens_per_s(lambda: loop.generate(load.prompt(), args.output), args.output, args.repeat)
    table = Table(title=f"{engine.info.name}, {args.prompt} in / {args.output} out, {engine.info.dtype} on "
                        f"{engine.info.device}, {torch.get_num_threads()} threads, output tokens/s")  # fmt: skip
    for column in ("concurrent", "engine", "engine, one by one", "plain loop", "engine / plain loop"):
        table.add_column(column, justify="right")
    for num_requests in map(int, args.concurrency.split(",")):
        rate = tokens_per_s(partial(load.together, num_requests), num_requests * args.output, args.repeat)
        ratio = f"{rate / plain:.1f}x" if plain else "-"
        table.add_row(str(num_requests), f"{rate:.0f}", f"{sequential:.0f}", f"{plain:.0f}" if plain else "-", ratio)
    engine.check_integrity()
    Console().print(table)


if __name__ == "__main__":
    main()
