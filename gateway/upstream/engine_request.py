"""An OpenAI request in the bundled engine's terms, or a plain word why the engine can't serve it. Runs nothing."""

import asyncio
from typing import Any

import msgspec

from engine.client import EngineClient
from engine.errors import InvalidRequest, PromptTooLong
from engine.types import GenerationRequest, SamplingParams
from gateway.errors import ContextLengthExceeded, InvalidRequestError
from gateway.upstream.types import Outbound
from gateway.wire.inference import Inference, Message

LONG_PROMPT_CHARACTERS = 8_192  # above it, tokenising is done in a thread: it would hold up every other stream
MAX_BYTES_PER_TOKEN = 128  # no token of any common vocabulary is longer
DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default of /v1/completions

MAX_CHOICES = 1_024

_UNSUPPORTED_CAPABILITIES = {  # capability -> the parameter that asked for it
    "tools": "tools",
    "images": "messages",
    "audio": "messages",
    "files": "messages",
    "json_schema": "response_format",
    "json_object": "response_format",
    "logprobs": "logprobs",
}
_UNSUPPORTED_FIELDS = ("frequency_penalty", "presence_penalty", "logit_bias", "suffix")


async def generation_requests(client: EngineClient, outbound: Outbound) -> list[GenerationRequest]:
    """One request for each choice: all of the first prompt's, then all of the second's.

    Raises InvalidRequestError for what the engine can't do.
    """
    inference = outbound.inference
    check_supported(inference)
    prompts = await _tokenised(client, inference)
    return [
        GenerationRequest(
            request_id=f"{outbound.request_id}-{place * inference.n + index}",
            prompt_token_ids=prompt,
            sampling=_sampling(outbound, index),
            cache_salt=outbound.cache_salt,
            fairness_key=outbound.fairness_key,
        )
        for place, prompt in enumerate(prompts)
        for index in range(inference.n)
    ]


def check_supported(inference: Inference) -> None:
    """Raises InvalidRequestError naming the capability or field that this engine lacks: nothing is silently ignored."""
    if inference.endpoint == "embeddings":
        raise InvalidRequestError("This model does not make embeddings.", param="model")
    for capability in sorted(inference.needs):
        param = _UNSUPPORTED_CAPABILITIES.get(capability, capability)
        raise _unsupported(f"the capability '{capability}'", param)
    for name in _UNSUPPORTED_FIELDS:
        if _field(inference, name):
            raise _unsupported(f"'{name}'", name)
    if (_field(inference, "best_of") or 1) > inference.n:
        raise _unsupported("'best_of' above 'n'", "best_of")
    if inference.num_choices > MAX_CHOICES:
        message = f"The bundled engine gives at most {MAX_CHOICES} answers to one request, not {inference.num_choices}."
        raise InvalidRequestError(message, param="n" if inference.n > 1 else "prompt")


def translate(error: InvalidRequest, inference: Inference) -> InvalidRequestError:
    """The engine's refusal in OpenAI's shape."""
    what = "messages" if inference.endpoint == "chat.completions" else "prompt"
    if isinstance(error, PromptTooLong):
        return ContextLengthExceeded(
            f"This model's maximum context length is {error.limit} tokens. "
            f"However, your {what} resulted in {error.num_tokens} tokens. Please reduce the length of the {what}.",
            param=what,
        )
    param = what if error.param in ("prompt", "messages") else error.param
    return InvalidRequestError(f"{error}", param=param)


def prompt_text(client: EngineClient, prompt: str | list[int]) -> str:
    """What `echo` gives back."""
    return prompt if isinstance(prompt, str) else client.decode(prompt)


def _sampling(outbound: Outbound, index: int) -> SamplingParams:
    inference = outbound.inference
    max_tokens = inference.max_tokens
    if max_tokens is None:
        max_tokens = DEFAULT_COMPLETION_TOKENS if inference.endpoint == "completions" else outbound.longest_answer
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=1.0 if inference.temperature is None else inference.temperature,
        top_p=1.0 if inference.top_p is None else inference.top_p,
        top_k=inference.top_k or 0,
        seed=None if inference.seed is None else _shifted(inference.seed, index),
        stop=inference.stop,
        ignore_eos=inference.ignore_eos,
    )


def _shifted(seed: int, index: int) -> int:
    """A seed of its own for each of n choices, which would all be equal otherwise; 64 bits, as it came."""
    return (seed + index + 2**63) % 2**64 - 2**63


async def _tokenised(client: EngineClient, inference: Inference) -> list[list[int]]:
    context = client.info.context_length

    def tokenise() -> list[list[int]]:
        if inference.endpoint == "chat.completions":
            messages = [_plain(message) for message in inference.messages]
            _check_size(sum(len(message["content"]) for message in messages), context)
            return [client.encode_chat(messages)]
        for prompt in inference.prompts:
            _check_size(len(prompt) if isinstance(prompt, str) else 0, context)
        return [client.encode(prompt) if isinstance(prompt, str) else prompt for prompt in inference.prompts]

    is_long = len(inference.raw) > LONG_PROMPT_CHARACTERS
    try:
        return await asyncio.to_thread(tokenise) if is_long else tokenise()
    except InvalidRequest as error:
        raise translate(error, inference) from error


def _check_size(num_characters: int, context_length: int) -> None:
    """Megabytes of text can't fit, and are not tokenised to learn by how much."""
    num_tokens = num_characters // MAX_BYTES_PER_TOKEN
    if num_tokens > context_length:
        raise PromptTooLong(num_tokens, context_length)


def _plain(message: Message) -> dict[str, Any]:
    """A message as chat templates expect it: plain text, and no roles younger than most templates."""
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": message.text}


def _field(inference: Inference, name: str) -> Any:
    """A top-level field that is not typed; None when absent. The parser has checked its type."""
    value = inference.fields.get(name)
    return None if value is None else msgspec.json.decode(value)


def _unsupported(what: str, param: str) -> InvalidRequestError:
    message = f"The bundled engine does not support {what}: name a model of a provider that does, or leave it out."
    return InvalidRequestError(message, param=param, code="unsupported_parameter")
