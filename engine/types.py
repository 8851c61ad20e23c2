"""What crosses the engine's border: options in, requests in, deltas and figures out. Imports no torch."""

from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "abort"]


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to build an engine. `model` is a path: a .gguf file, or a folder with config.json and safetensors."""

    model: str
    name: str = ""
    device: str = "auto"  # "auto", "cpu", "cuda", "cuda:1"
    kv_cache_mb: int = 512
    max_batch_tokens: int = 512  # tokens one step may run: the chunked-prefill budget
    max_batch_size: int = 64  # sequences one step may run
    max_wait_ms: float = 2.0  # an idle engine waits so long for company before its first step
    max_waiting: int = 1024  # requests beyond max_batch_size that may queue before EngineOverloaded
    max_model_len: int | None = None  # None: what the model file says
    num_threads: int | None = None  # None: torch's choice
    exact_prefix: bool = False  # True: a prompt never hits blocks that were written while generating


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How to choose tokens. A seed reproduces whatever else is in the batch.

    temperature 0 and top_p 0 are greedy; top_k 0 and -1 are off. temperature goes from 0 to 2.
    """

    max_tokens: int | None = None  # None: up to the context's end
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams = SamplingParams()
    cache_salt: str = ""  # prefix-cache blocks are shared only under an equal salt
    fairness_key: str = ""
    priority: int = 0  # lower runs first


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of one answer. Joined texts are the answer; the last delta alone has a finish_reason."""

    text: str
    token_ids: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0  # of the prompt, found in the prefix cache
    num_generated_tokens: int = 0  # so far, end-of-sequence included


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    architecture: str
    context_length: int
    vocab_size: int
    num_parameters: int
    dtype: str
    device: str
    has_chat_template: bool


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot for metrics; totals count since start."""

    num_running: int = 0
    num_waiting: int = 0
    num_blocks: int = 0
    num_free_blocks: int = 0  # cached blocks nobody uses count as free
    num_cached_blocks: int = 0
    prompt_tokens_total: int = 0
    cached_prompt_tokens_total: int = 0
    generated_tokens_total: int = 0
    preemptions_total: int = 0
    steps_total: int = 0
