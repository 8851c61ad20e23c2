"""POST /v1/completions: the body parsed and checked as strictly as OpenAI does. Unknown fields are kept."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gateway.errors import InvalidRequestError
from gateway.wire.body import (
    CommonFields,
    check_logit_bias,
    check_model,
    check_stop,
    check_stream_options,
    decode_body,
    invalid,
    missing,
    token_ids,
)
from gateway.wire.inference import Inference

DEFAULT_PROMPT = "<|endoftext|>"  # what OpenAI's reference gives a request whose prompt is null
MAX_PROMPTS = 2048


class _CompletionFields(CommonFields, kw_only=True):
    prompt: Any = msgspec.UNSET
    max_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    best_of: Annotated[int, Meta(ge=0, le=20)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    suffix: str | None = None


_decoder = msgspec.json.Decoder(_CompletionFields)


def parse_completion(raw: bytes) -> Inference:
    """Raises InvalidRequestError, with `param` naming the field at fault."""
    fields, body = decode_body(raw, _decoder)
    check_model(body.model)
    check_logit_bias(body.logit_bias)
    stop = check_stop(body.stop)
    include_usage = check_stream_options(body.stream, body.stream_options)
    num_choices = body.n or 1
    if body.best_of:
        if body.best_of < num_choices:
            raise invalid("best_of", "can't be less than 'n'")
        if body.stream and body.best_of > num_choices:
            raise invalid("best_of", "can't be more than 'n' in a stream")
    return Inference(
        endpoint="completions",
        raw=raw,
        fields=fields,
        model=body.model,
        stream=bool(body.stream),
        include_usage=include_usage,
        prompts=_prompts(body.prompt),
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        seed=body.seed,
        n=num_choices,
        best_of=body.best_of or None,
        stop=stop,
        ignore_eos=bool(body.ignore_eos),
        echo=bool(body.echo),
        user=body.user,
        needs=frozenset() if body.logprobs is None else frozenset({"logprobs"}),
    )


def _prompts(prompt: Any) -> tuple[str | list[int], ...]:
    """One prompt for each answer: from a string, strings, tokens, or arrays of tokens."""
    if prompt is msgspec.UNSET:
        raise missing("prompt")
    if prompt is None:
        return (DEFAULT_PROMPT,)
    prompts = texts_or_tokens(prompt, "prompt")
    if len(prompts) > MAX_PROMPTS:
        raise invalid("prompt", f"expected at most {MAX_PROMPTS} prompts, got {len(prompts)}")
    return prompts


def texts_or_tokens(value: Any, param: str) -> tuple[str | list[int], ...]:
    """The four shapes that OpenAI takes a text in: a string, strings, tokens, arrays of tokens."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise InvalidRequestError(f"Invalid type for '{param}': expected a string or an array.", param=param)
    if not value:
        raise invalid(param, "expected at least one element")
    first = value[0]
    if isinstance(first, str):
        if all(isinstance(item, str) for item in value):
            return tuple(value)
    elif type(first) is int:
        if token_ids(value):
            return (value,)
    elif isinstance(first, list) and all(map(token_ids, value)):
        return tuple(value)
    raise invalid(param, "expected a string, an array of strings, an array of tokens, or an array of arrays of tokens")
