"""What crosses the engine's border: options in, requests in, deltas and figures out. Imports no torch."""

from collections.abc import Callable
from typing import Literal

import msgspec

LoadProgress = Callable[[int, int], None]  # bytes of weights read so far, and in all; from the loading thread
FinishReason = Literal["stop", "length", "abort"]
KVCacheDtype = Literal["auto", "int8", "fp8"]
Pooling = Literal["last", "mean"]
GrammarKind = Literal["json_schema", "json_object", "regex", "choice", "lark", "tools"]


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
    kv_cache_dtype: KVCacheDtype = "auto"  # "auto": as the activations; the others halve the cache, and lose a little
    swap_space_gb: float = 0.0  # host memory for the KV of preempted sequences; without it they are computed anew
    prefix_caching: bool = True
    exact_prefix: bool = False  # True: a prompt never hits blocks that were written while generating
    bf16_copy: bool = True  # of quantised weights, for prompts: 2 bytes a weight, and prompts run several times faster
    lark_grammars: bool = (
        False  # only for callers that are trusted: some cost a core for ever, and nothing can stop them
    )


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How to choose tokens. A seed reproduces whatever else is in the batch.

    temperature 0 and top_p 0 are greedy; top_k 0 and -1 are off. temperature goes from 0 to 2.

    What shapes the logits comes first, in this order: the grammar's mask, logit_bias, repetition_penalty (divides
    positive and multiplies negative logits of tokens in prompt or answer; Keskar et al. 2019), frequency_penalty (times
    a token's count in the answer) and presence_penalty (for a token in the answer). Then temperature, top_k, top_p,
    min_p (drops what is less likely than min_p times the most likely token; Nguyen et al. 2024).
    """

    max_tokens: int | None = None  # None: up to the context's end
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: dict[int, float] = {}  # added to the logits, -100 to 100; -100 bans the token
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # 0: of each chosen token; N: of the N most likely ones as well
    prompt_logprobs: int | None = None  # the same of the prompt's tokens; such a request uses no cached prefix


class Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer must look like. `source`: a JSON schema, a regular expression, a JSON list of strings to choose

    from, or a grammar in Lark's notation; nothing for "json_object". "tools" is what `engine.tools` writes, in Lark's
    notation, too: nothing in it but JSON schemas may be a caller's.
    """

    kind: GrammarKind
    source: str = ""


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams = SamplingParams()
    n: int = 1  # answers to give; answer i draws as if it were alone with seed + i
    best_of: int | None = None  # answers to make, of which the n with the highest mean logprob are given, at the end
    grammar: Grammar | None = None
    pooling: Pooling | None = None  # embed the prompt instead of answering it: the last delta has the embedding
    cache_salt: str = ""  # prefix-cache blocks are shared only under an equal salt
    fairness_key: str = ""
    priority: int = 0  # lower runs first


class Logprob(msgspec.Struct, frozen=True, gc=False):
    token_id: int
    logprob: float  # natural; of the model's own distribution, before anything in SamplingParams changed it


class TokenLogprobs(msgspec.Struct, frozen=True, gc=False):
    token_id: int
    logprob: float
    top: tuple[Logprob, ...] = ()  # the N most likely tokens, in falling order


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of one answer. Joined texts are the answer; the last delta of each index alone has a finish_reason."""

    text: str
    index: int = 0  # which of the request's n answers
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()  # one for each of token_ids, if they were asked for
    prompt_logprobs: tuple[
        TokenLogprobs, ...
    ] = ()  # in the answer's first delta: of the prompt from its second token on
    embedding: tuple[float, ...] | None = None
    finish_reason: FinishReason | None = None
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0  # of the prompt, found in the prefix cache
    num_generated_tokens: int = 0  # so far, end-of-sequence included
    num_discarded_tokens: int = 0  # in the last delta of all: tokens of the answers that best_of did not give


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
    swapped_blocks_total: int = 0  # copied out to host memory
    steps_total: int = 0
