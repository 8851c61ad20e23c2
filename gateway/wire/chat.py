"""POST /v1/chat/completions: the body parsed and checked as strictly as OpenAI does. Unknown fields are kept."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.wire.body import (
    CommonFields,
    NumTokens,
    check_logit_bias,
    check_model,
    check_stop,
    check_stream_options,
    decode_body,
    invalid,
    member,
    missing,
)
from gateway.wire.inference import Inference, Message

_PART_PAYLOADS = {  # part type -> the member that must be there, its type, and the capability it needs
    "text": ("text", str, None),
    "refusal": ("refusal", str, None),
    "image_url": ("image_url", dict, "images"),
    "input_audio": ("input_audio", dict, "audio"),
    "file": ("file", dict, "files"),
}


class _ResponseFormat(msgspec.Struct):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None


class _ChatFields(CommonFields, kw_only=True):
    messages: Annotated[tuple[Message, ...], Meta(min_length=1)]
    max_tokens: NumTokens | None = None
    max_completion_tokens: NumTokens | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    functions: list[dict[str, Any]] | None = None
    function_call: str | dict[str, Any] | None = None
    response_format: _ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    prediction: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


_decoder = msgspec.json.Decoder(_ChatFields)
_HARMLESS = frozenset(  # a value of the right type is all that is asked of these, and most requests have no others
    (
        "model",
        "messages",
        "stream",
        "temperature",
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "frequency_penalty",
        "presence_penalty",
        "seed",
        "user",
    )
)
_NOTHING_MORE: tuple[tuple[str, ...], bool, frozenset[str]] = ((), False, frozenset())


def parse_chat(raw: bytes) -> Inference:
    """Raises InvalidRequestError, with `param` naming the field at fault."""
    fields, body = decode_body(raw, _decoder)
    check_model(body.model)
    plain = fields.keys() <= _HARMLESS
    stop, include_usage, needs = _NOTHING_MORE if plain else _check_together(body)
    for index, message in enumerate(body.messages):
        # The plain case first: a string, and nothing else to look at.
        if type(message.content) is not str or message.role in ("assistant", "tool", "function"):
            needs |= _check_message(message, f"messages[{index}]")
    return Inference(
        endpoint="chat.completions",
        raw=raw,
        fields=fields,
        model=body.model,
        stream=bool(body.stream),
        include_usage=include_usage,
        messages=body.messages,
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        seed=body.seed,
        n=body.n or 1,
        stop=stop,
        ignore_eos=bool(body.ignore_eos),
        user=body.user,
        tools=body.tools,
        needs=needs,
    )


def _check_together(body: _ChatFields) -> tuple[tuple[str, ...], bool, frozenset[str]]:
    """What types can't say of the fields. Returns stop sequences, whether usage is wanted, and needed capabilities."""
    check_logit_bias(body.logit_bias)
    return check_stop(body.stop), check_stream_options(body.stream, body.stream_options), _needs(body)


def _needs(body: _ChatFields) -> frozenset[str]:
    """The capabilities that the fields beside the messages ask for."""
    needs: set[str] = set()
    if body.tools or body.functions:
        needs.add("tools")
        _check_tools(body)
    _check_company(body)
    if body.response_format is not None and body.response_format.type != "text":
        needs.add(body.response_format.type)
        _check_response_format(body.response_format)
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid("top_logprobs", "only allowed when 'logprobs' is true")
    if body.logprobs:
        needs.add("logprobs")
    if body.audio is not None or (body.modalities and "audio" in body.modalities):
        needs.add("audio")
    return frozenset(needs)


def _check_company(body: _ChatFields) -> None:
    """What says how to call is nothing without something to call; "none" harms nobody."""
    if not body.tools:
        if body.tool_choice not in (None, "none"):
            raise invalid("tool_choice", "only allowed when 'tools' are given")
        if body.parallel_tool_calls is not None:
            raise invalid("parallel_tool_calls", "only allowed when 'tools' are given")
    if not body.functions and body.function_call not in (None, "none"):
        raise invalid("function_call", "only allowed when 'functions' are given")


def _check_tools(body: _ChatFields) -> None:
    for index, tool in enumerate(body.tools or ()):
        where = f"tools[{index}]"
        kind = member(tool, "type", str, where)
        if kind in ("function", "custom"):
            member(member(tool, kind, dict, where), "name", str, f"{where}.{kind}")
    for index, function in enumerate(body.functions or ()):
        member(function, "name", str, f"functions[{index}]")


def _check_response_format(response_format: _ResponseFormat) -> None:
    if response_format.type == "json_schema":
        if response_format.json_schema is None:
            raise missing("response_format.json_schema")
        member(response_format.json_schema, "name", str, "response_format.json_schema")


def _check_message(message: Message, where: str) -> set[str]:
    """Returns the capabilities that it needs."""
    needs: set[str] = set()
    calls = message.tool_calls
    if calls is not None or message.function_call is not None or message.role in ("tool", "function"):
        needs.add("tools")
    for index, call in enumerate(calls or ()):
        _check_tool_call(call, f"{where}.tool_calls[{index}]")
    if message.role == "tool" and message.tool_call_id is None:
        raise missing(f"{where}.tool_call_id")
    if message.role == "function" and message.name is None:
        raise missing(f"{where}.name")
    if message.content is None:
        if message.role not in ("assistant", "function"):
            raise invalid(f"{where}.content", "expected a string or an array of parts, got null")
    elif isinstance(message.content, list):
        needs |= _check_parts(message.content, f"{where}.content")
    return needs


def _check_tool_call(call: dict[str, Any], where: str) -> None:
    member(call, "id", str, where)
    kind = call.get("type", "function")
    if kind == "function":
        function = member(call, "function", dict, where)
        member(function, "name", str, f"{where}.function")
        member(function, "arguments", str, f"{where}.function")


def _check_parts(parts: list[dict[str, Any]], where: str) -> set[str]:
    needs: set[str] = set()
    if not parts:
        raise invalid(where, "expected at least one part")
    for index, part in enumerate(parts):
        kind = member(part, "type", str, f"{where}[{index}]")
        if kind not in _PART_PAYLOADS:
            raise invalid(f"{where}[{index}].type", f"{kind[:64]!r} is not one of {', '.join(_PART_PAYLOADS)}")
        name, expected, capability = _PART_PAYLOADS[kind]
        payload = member(part, name, expected, f"{where}[{index}]")
        if kind == "image_url":
            member(payload, "url", str, f"{where}[{index}].image_url")
        if capability:
            needs.add(capability)
    return needs
