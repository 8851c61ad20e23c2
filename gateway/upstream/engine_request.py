"""An OpenAI request in the bundled engine's terms, or a plain word why the engine can't serve it. Runs nothing."""

import asyncio
from typing import Any

import msgspec

from engine.client import EngineClient
from engine.errors import InvalidRequest, PromptTooLong, SwitchedOff
from engine.types import GenerationRequest, Grammar, SamplingParams
from gateway.errors import ContextLengthExceeded, InvalidRequestError
from gateway.upstream.engine_fields import check_endpoint, field, unsupported
from gateway.upstream.engine_grammar import Demand, demand
from gateway.upstream.engine_tools import Toolbox, plain, toolbox
from gateway.upstream.native import refuse_lost
from gateway.upstream.types import Outbound
from gateway.wire.body import MAX_DEPTH_MESSAGE, invalid
from gateway.wire.inference import Inference

LONG_PROMPT_CHARACTERS = 8_192  # above it, tokenising is done in a thread: it would hold up every other stream
MAX_BYTES_PER_TOKEN = 128  # no token of any common vocabulary is longer
MAX_BYTES_PER_CHARACTER = 6  # of JSON, where any may be written as an escape
DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default of /v1/completions
BACKGROUND = 1  # the priority of service_tier "flex": after everybody who did not ask for it

MAX_CHOICES = 1_024

_UNSUPPORTED_CAPABILITIES = {"images": "messages", "audio": "messages", "files": "messages"}
_UNSUPPORTED_FIELDS = ("suffix", "web_search_options", "moderation")  # each asks for something to be done
_SAMPLING_FIELDS = (  # that have the same name, meaning and default in the engine
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine is to do: one request for each prompt, and how its answers are to be read."""

    requests: list[GenerationRequest]
    toolbox: Toolbox | None = None
    grammar_param: str = ""  # the field that asked for the requests' grammar


async def make_order(client: EngineClient, outbound: Outbound) -> Order:
    """Raises InvalidRequestError for what the engine can't do."""
    inference = outbound.inference
    check_supported(inference)
    if inference.endpoint == "embeddings":
        return Order(requests=await _embeddings(client, outbound))
    try:
        tools = toolbox(inference)
        wanted = demand(inference)
        grammar = _grammar(client, tools, wanted)
        prompts = await _tokenised(client, inference, tools)
    except InvalidRequest as error:
        raise translate(error, inference) from error
    except RecursionError as error:  # a schema that could just be read, and can't be written
        raise InvalidRequestError(MAX_DEPTH_MESSAGE) from error
    requests = [
        GenerationRequest(
            request_id=f"{outbound.request_id}-{place}",
            prompt_token_ids=prompt,
            sampling=_sampling(outbound, only_calls=tools is not None and tools.must_call),
            n=inference.n,
            best_of=inference.best_of,
            grammar=grammar,
            cache_salt=outbound.cache_salt,
            fairness_key=outbound.fairness_key,
            priority=max(outbound.priority, BACKGROUND if field(inference, "service_tier") == "flex" else 0),
        )
        for place, prompt in enumerate(prompts)
    ]
    param = "tools" if tools is not None and (wanted is None or tools.must_call) else wanted.param if wanted else ""
    return Order(requests=requests, toolbox=tools, grammar_param=param)


def check_supported(inference: Inference) -> None:
    """Raises InvalidRequestError naming the capability or field that this engine lacks: nothing is silently ignored."""
    check_endpoint(inference)
    refuse_lost(inference)
    for capability in sorted(inference.needs & _UNSUPPORTED_CAPABILITIES.keys()):
        raise unsupported(f"the capability '{capability}'", _UNSUPPORTED_CAPABILITIES[capability])
    for name in _UNSUPPORTED_FIELDS:
        if field(inference, name) not in (None, ""):
            raise unsupported(f"'{name}'", name)
    num_choices = len(inference.prompts or ("",)) * max(inference.n, inference.best_of or 0)
    if num_choices > MAX_CHOICES and inference.endpoint != "embeddings":
        message = f"The bundled engine gives at most {MAX_CHOICES} answers to one request, not {num_choices}."
        raise InvalidRequestError(message, param="n" if inference.n > 1 else "prompt")


def translate(error: InvalidRequest, inference: Inference, grammar_param: str = "") -> InvalidRequestError:
    """The engine's refusal in OpenAI's shape."""
    what = {"chat.completions": "messages", "completions": "prompt", "embeddings": "input"}[inference.endpoint]
    if isinstance(error, PromptTooLong):
        return ContextLengthExceeded(
            f"This model's maximum context length is {error.limit} tokens. "
            f"However, your {what} resulted in {error.num_tokens} tokens. Please reduce the length of the {what}.",
            param=what,
        )
    param = what if error.param in ("prompt", "messages") else error.param
    if param == "grammar":
        param = grammar_param or None
    code = "unsupported_parameter" if isinstance(error, SwitchedOff) else None
    return InvalidRequestError(f"{error}", param=param, code=code)


def prompt_text(client: EngineClient, prompt: str | list[int]) -> str:
    """What `echo` gives back."""
    return prompt if isinstance(prompt, str) else client.decode(prompt)


def num_logprobs(inference: Inference) -> int | None:
    """How many of the most likely tokens are wanted with each chosen one; None for no logprobs at all."""
    logprobs = field(inference, "logprobs")
    if inference.endpoint == "chat.completions":
        return (field(inference, "top_logprobs") or 0) if logprobs else None
    return None if logprobs is None else int(logprobs)


def _grammar(client: EngineClient, tools: Toolbox | None, wanted: Demand | None) -> Grammar | None:
    if tools is None:
        return wanted.grammar if wanted is not None else None
    otherwise = None if wanted is None or tools.must_call else wanted.grammar
    if otherwise is not None and otherwise.kind not in ("json_schema", "json_object"):
        assert wanted is not None
        raise invalid(wanted.param, "not possible together with 'tools'")
    return client.tool_format.grammar(tools.tools, must_call=tools.must_call, most=tools.most, otherwise=otherwise)


def _sampling(outbound: Outbound, *, only_calls: bool) -> SamplingParams:
    """`only_calls`: the answer has no text, which is what a client's stops are for."""
    inference = outbound.inference
    max_tokens = inference.max_tokens
    if max_tokens is None:
        max_tokens = DEFAULT_COMPLETION_TOKENS if inference.endpoint == "completions" else outbound.longest_answer
    logprobs = num_logprobs(inference)
    given = {name: value for name in _SAMPLING_FIELDS if (value := field(inference, name)) is not None}
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=1.0 if inference.temperature is None else inference.temperature,
        top_p=1.0 if inference.top_p is None else inference.top_p,
        top_k=inference.top_k or 0,
        seed=inference.seed,
        stop=() if only_calls else inference.stop,
        stop_token_ids=() if only_calls else tuple(field(inference, "stop_token_ids") or ()),
        ignore_eos=inference.ignore_eos,
        logit_bias={int(token): bias for token, bias in (field(inference, "logit_bias") or {}).items()},
        logprobs=logprobs,
        prompt_logprobs=logprobs if inference.echo else None,
        **given,
    )


async def _embeddings(client: EngineClient, outbound: Outbound) -> list[GenerationRequest]:
    try:
        inputs = await _tokenised(client, outbound.inference, None)
    except InvalidRequest as error:
        raise translate(error, outbound.inference) from error
    return [
        GenerationRequest(
            request_id=f"{outbound.request_id}-{place}",
            prompt_token_ids=token_ids,
            pooling="last",
            cache_salt=outbound.cache_salt,
            fairness_key=outbound.fairness_key,
            priority=outbound.priority,
        )
        for place, token_ids in enumerate(inputs)
    ]


async def _tokenised(client: EngineClient, inference: Inference, tools: Toolbox | None) -> list[list[int]]:
    """Raises InvalidRequest, InvalidRequestError."""
    context = client.info.context_length

    def tokenise() -> list[list[int]]:
        if inference.endpoint == "chat.completions":
            messages: list[dict[str, Any]] = [plain(message) for message in inference.messages]
            _check_size(sum(len(message["content"]) for message in messages), context)
            if tools is not None:
                _check_size(len(inference.raw) // MAX_BYTES_PER_CHARACTER, context)  # their schemas go in, too
            return [client.encode_chat(messages, tools.described if tools is not None else None)]
        for prompt in inference.prompts:
            _check_size(len(prompt) if isinstance(prompt, str) else 0, context)
        return [client.encode(prompt) if isinstance(prompt, str) else prompt for prompt in inference.prompts]

    is_long = len(inference.raw) > LONG_PROMPT_CHARACTERS
    return await asyncio.to_thread(tokenise) if is_long else tokenise()


def _check_size(num_characters: int, context_length: int) -> None:
    """Megabytes of text can't fit, and are not tokenised to learn by how much."""
    num_tokens = num_characters // MAX_BYTES_PER_TOKEN
    if num_tokens > context_length:
        raise PromptTooLong(num_tokens, context_length)
