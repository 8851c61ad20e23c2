"""Refuse requests that can't be served, and bring the others into one form. Knows the model's limits, no weights."""

import math
import secrets
import typing
from array import array
from collections.abc import Sequence
from typing import TypeGuard

import msgspec

from engine.errors import InvalidRequest, PromptTooLong
from engine.types import (
    EngineOptions,
    GenerationRequest,
    Grammar,
    GrammarKind,
    KVCacheDtype,
    Pooling,
    SamplingParams,
)

MAX_TEMPERATURE = 2.0
MAX_PENALTY = 2.0  # of frequency and presence, to either side: OpenAI's range
MAX_REPETITION_PENALTY = 100.0  # or its inverse: far beyond use, and far from overflow
MAX_LOGIT_BIAS = 100.0  # to either side: OpenAI's range
MAX_LOGPROBS = 20  # most likely tokens an answer's token may come with: OpenAI's limit
SEED_BITS = 63  # of the seeds that are drawn for requests without one


def check_options(options: EngineOptions) -> None:
    """Raises ValueError: a wrong option is the caller's bug, not a request's fault."""
    for name in ("max_batch_tokens", "max_batch_size", "kv_cache_mb"):
        if getattr(options, name) < 1:
            raise ValueError(f"{name} must be at least 1, not {getattr(options, name)}")
    if options.num_threads is not None and options.num_threads < 1:
        raise ValueError(f"num_threads must be at least 1, not {options.num_threads}")
    if options.kv_cache_dtype not in typing.get_args(KVCacheDtype):
        known = ", ".join(typing.get_args(KVCacheDtype))
        raise ValueError(f"kv_cache_dtype must be one of {known}, not {options.kv_cache_dtype!r}")
    if options.max_waiting < 0:
        raise ValueError(f"max_waiting must be at least 0, not {options.max_waiting}")
    if not 0 <= options.max_wait_ms < math.inf:
        raise ValueError(f"max_wait_ms must be a time of at least 0, not {options.max_wait_ms}")
    if not 0 <= options.swap_space_gb < math.inf:
        raise ValueError(f"swap_space_gb must be a size of at least 0, not {options.swap_space_gb}")
    if options.max_model_len is not None and options.max_model_len < 2:
        raise ValueError(f"max_model_len must be at least 2 (a prompt and an answer), not {options.max_model_len}")


def validated(params: GenerationRequest, *, max_length: int, vocab_size: int, bos_id: int | None) -> GenerationRequest:
    """`params` with an empty prompt replaced by the BOS token, and its sampling normalised.

    Raises InvalidRequest whose `param` names the field, PromptTooLong for a prompt of `max_length` tokens or more.
    """
    for name in ("request_id", "cache_salt", "fairness_key"):
        if not isinstance(getattr(params, name), str):
            raise InvalidRequest(f"{name} must be a string", name)
    if not _is_int(params.priority):
        raise InvalidRequest("priority must be an integer", "priority")
    if params.pooling is not None:
        _check_word(params.pooling, typing.get_args(Pooling), "pooling")
    if params.grammar is not None:
        _check_grammar(params.grammar)
    prompt = params.prompt_token_ids
    if not prompt:
        if bos_id is None:
            raise InvalidRequest("the prompt is empty, and this model has no token to begin with", "prompt")
        prompt = [bos_id]
    _check_token_ids(prompt, vocab_size, "prompt")
    if len(prompt) >= max_length:
        raise PromptTooLong(len(prompt), max_length)
    return msgspec.structs.replace(
        params, prompt_token_ids=list(prompt), sampling=normalised(params.sampling, vocab_size)
    )


def normalised(sampling: SamplingParams, vocab_size: int) -> SamplingParams:
    """One form for each meaning: greedy is temperature 0, no top-k is top_k 0, and there always is a seed.

    top_p = 0 means greedy: the smallest set of tokens with a mass of at least 0 is the most likely one.
    """
    check_sampling(sampling, vocab_size)
    return msgspec.structs.replace(
        sampling,
        temperature=0.0 if sampling.top_p == 0 else float(sampling.temperature),
        top_p=1.0 if sampling.top_p == 0 else float(sampling.top_p),
        top_k=0 if sampling.top_k == -1 else min(sampling.top_k, vocab_size),
        logit_bias={token_id: float(bias) for token_id, bias in sampling.logit_bias.items() if bias},
        seed=secrets.randbits(SEED_BITS) if sampling.seed is None else sampling.seed,
        stop=tuple(sampling.stop),
        stop_token_ids=tuple(sampling.stop_token_ids),
    )


def check_sampling(sampling: SamplingParams, vocab_size: int) -> None:
    """Raises InvalidRequest whose `param` names the field at fault."""
    if sampling.max_tokens is not None and not (_is_int(sampling.max_tokens) and sampling.max_tokens >= 0):
        raise InvalidRequest(f"max_tokens must be an integer of at least 0, not {sampling.max_tokens!r}", "max_tokens")
    _check_range(sampling.temperature, 0.0, MAX_TEMPERATURE, "temperature")
    _check_range(sampling.top_p, 0.0, 1.0, "top_p")
    _check_range(sampling.min_p, 0.0, 1.0, "min_p")
    _check_range(sampling.frequency_penalty, -MAX_PENALTY, MAX_PENALTY, "frequency_penalty")
    _check_range(sampling.presence_penalty, -MAX_PENALTY, MAX_PENALTY, "presence_penalty")
    _check_range(sampling.repetition_penalty, 1 / MAX_REPETITION_PENALTY, MAX_REPETITION_PENALTY, "repetition_penalty")
    _check_logit_bias(sampling.logit_bias, vocab_size)
    if not (_is_int(sampling.top_k) and sampling.top_k >= -1):
        raise InvalidRequest(f"top_k must be an integer of at least -1, not {sampling.top_k!r}", "top_k")
    for name in ("logprobs", "prompt_logprobs"):
        _check_num_logprobs(getattr(sampling, name), name)
    if sampling.seed is not None and not (_is_int(sampling.seed) and -(2**63) <= sampling.seed < 2**64):
        raise InvalidRequest(f"seed must be an integer of at most 64 bits, not {sampling.seed!r}", "seed")
    if not isinstance(sampling.ignore_eos, bool):
        raise InvalidRequest(f"ignore_eos must be true or false, not {sampling.ignore_eos!r}", "ignore_eos")
    stops = sampling.stop
    if not isinstance(stops, list | tuple) or not all(isinstance(stop, str) and stop for stop in stops):
        raise InvalidRequest("stop must be a list of strings, none of them empty", "stop")
    _check_token_ids(sampling.stop_token_ids, vocab_size, "stop_token_ids")


def _check_grammar(grammar: object) -> None:
    """Of what is not one of the known kinds, nobody has checked what it may cost."""
    if not isinstance(grammar, Grammar):
        raise InvalidRequest(f"grammar must be a Grammar, not {grammar!r}", "grammar")
    _check_word(grammar.kind, typing.get_args(GrammarKind), "grammar")
    if not isinstance(grammar.source, str):
        raise InvalidRequest("a grammar's source must be a string", "grammar")


def _check_word(value: object, known: Sequence[str], param: str) -> None:
    if value not in known:
        raise InvalidRequest(f"{param} must be one of {', '.join(known)}, not {value!r}", param)


def _check_range(value: object, minimum: float, maximum: float, param: str) -> None:
    if not (_is_number(value) and minimum <= value <= maximum):  # NaN compares false
        raise InvalidRequest(f"{param} must be a number from {minimum:g} to {maximum:g}, not {value!r}", param)


def _check_logit_bias(logit_bias: object, vocab_size: int) -> None:
    if not isinstance(logit_bias, dict):
        raise InvalidRequest("logit_bias must map token ids to numbers", "logit_bias")
    if not all(_is_int(token_id) for token_id in logit_bias):
        raise InvalidRequest("logit_bias must map token ids to numbers: its keys are integers", "logit_bias")
    _check_token_ids(tuple(logit_bias), vocab_size, "logit_bias")
    for bias in logit_bias.values():
        _check_range(bias, -MAX_LOGIT_BIAS, MAX_LOGIT_BIAS, "logit_bias")


def _check_num_logprobs(value: object, param: str) -> None:
    if value is not None and not (_is_int(value) and 0 <= value <= MAX_LOGPROBS):
        raise InvalidRequest(f"{param} must be an integer from 0 to {MAX_LOGPROBS}, not {value!r}", param)


def _check_token_ids(token_ids: Sequence[int], vocab_size: int, param: str) -> None:
    try:
        largest = max(array("I", token_ids), default=0)
    except (TypeError, OverflowError):
        raise InvalidRequest(f"{param} must hold token ids: integers from 0 to {vocab_size - 1}", param) from None
    if largest >= vocab_size:
        raise InvalidRequest(f"{param} holds {largest}, but this model's largest token id is {vocab_size - 1}", param)


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
