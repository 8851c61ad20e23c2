"""POST /v1/messages: a client's request, checked as far as it is understood, as a chat for any model.

The request itself stays beside the translation, byte for byte, for a provider of the same API.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gateway.errors import InvalidRequestError
from gateway.wire.body import Probability, check_model, decode_body, invalid, member, missing
from gateway.wire.inference import Inference, Message, Native
from gateway.wire.members import decode_members
from gateway.wire.messages.tools import chat_tool_choice, chat_tools
from gateway.wire.messages.turns import Conversation, Turn

API = "messages"


class _Metadata(msgspec.Struct):
    user_id: str | None = None


class _OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: dict[str, Any] | None = None


class _Fields(msgspec.Struct):
    model: str
    messages: Annotated[tuple[Turn, ...], Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    system: str | list[dict[str, Any]] | None = None
    stream: bool | None = None
    temperature: Probability | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    stop_sequences: tuple[str, ...] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    metadata: _Metadata | None = None
    output_config: _OutputConfig | None = None
    output_format: dict[str, Any] | None = None  # what output_config.format was called in its beta


_SAID = frozenset(_Fields.__struct_fields__)  # in the chat's own words
_UNHEARD = frozenset(
    # Nothing that an answer's words depend on, or, as `thinking`, a wish that most models can't hear.
    (
        *("cache_control", "context_management", "diagnostics", "service_tier", "speed"),
        *("thinking", "user_profile_id", "workspace_id"),
    )
)
_ANTHROPICS_OWN = frozenset(("container", "mcp_servers", "inference_geo"))
CHATS_OWN = {  # chat's name for it -> where it stands here: beside the translation it would say something else
    "n": None,
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
    "stream_options": None,
    "response_format": "output_config.format",
    "reasoning_effort": "output_config.effort",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "functions": "tools",
    "function_call": "tool_choice",
    "logprobs": None,
    "top_logprobs": None,
    "modalities": None,
    "audio": None,
    "prediction": None,
}

_decoder = msgspec.json.Decoder(_Fields)


def parse_messages(raw: bytes, headers: tuple[tuple[str, str], ...] = (), *, counting: bool = False) -> Inference:
    """`headers`: the client's that go with the request to a provider of the same API. `counting`: nothing is generated,
    and max_tokens need not be there. Raises InvalidRequestError.
    """
    fields, body = decode_body(raw, _decoder)
    check_model(body.model)
    _refuse_chats_own(fields)
    if body.max_tokens is None and not counting:
        raise missing("max_tokens")
    conversation = Conversation()
    if body.system is not None:
        conversation.system(body.system, "system")
    for index, turn in enumerate(body.messages):
        conversation.add(turn, f"messages[{index}]")
    chat = _chat(body, conversation) | _unknown(fields, conversation)
    needs = conversation.needs | ({API} if conversation.lost else set())
    translated = msgspec.json.encode(chat)
    return Inference(
        endpoint="chat.completions",
        api=API,
        native=Native(
            raw=raw, fields=fields, headers=headers, lost=tuple(conversation.lost), unsigned=conversation.unsigned
        ),
        raw=translated,
        fields=decode_members(translated),
        model=body.model,
        stream=bool(body.stream),
        include_usage=bool(body.stream),
        messages=msgspec.convert(tuple(conversation.messages), tuple[Message, ...]),
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop=body.stop_sequences or (),
        user=chat.get("user"),
        tools=chat.get("tools"),
        needs=frozenset(needs),
    )


def _refuse_chats_own(fields: Mapping[str, msgspec.Raw]) -> None:
    """In whatever case: there are servers that read keys so."""
    for name in fields:
        if name.casefold() in CHATS_OWN:
            here = CHATS_OWN[name.casefold()]
            instead = f" In the Messages API it is '{here}'." if here else ""
            message = f"Unsupported parameter: '{name}'.{instead}"
            raise InvalidRequestError(message, param=name, code="unsupported_parameter")


def _chat(body: _Fields, conversation: Conversation) -> dict[str, Any]:
    """The chat's fields."""
    if body.messages[-1].role == "assistant":
        conversation.lose("a last turn of the assistant's, to be continued")
    if body.max_tokens == 0:
        conversation.lose("a 'max_tokens' of 0")
    chat: dict[str, Any] = {"model": body.model, "messages": conversation.messages}
    named = {
        "max_completion_tokens": body.max_tokens or None,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "stop": body.stop_sequences or None,
        "user": body.metadata.user_id if body.metadata else None,
    }
    chat |= {name: value for name, value in named.items() if value is not None}
    if body.stream:
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    if tools := chat_tools(body.tools or [], conversation):
        conversation.needs.add("tools")
        chat["tools"] = tools
        if body.tool_choice is not None:
            chat |= chat_tool_choice(body.tool_choice)
    return chat | _output(body, conversation)


def _output(body: _Fields, conversation: Conversation) -> dict[str, Any]:
    """What output_config says: how much effort, and a schema to keep to."""
    config = body.output_config or _OutputConfig()
    chat: dict[str, Any] = {}
    if config.effort is not None:
        chat["reasoning_effort"] = "xhigh" if config.effort == "max" else config.effort
    wanted = config.format or body.output_format
    if wanted is not None:
        if wanted.get("type") != "json_schema":
            raise invalid("output_config.format.type", "expected json_schema")
        schema = member(wanted, "schema", dict, "output_config.format")
        conversation.needs.add("json_schema")
        named = {"name": "answer", "schema": schema, "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": named}
    return chat


def _unknown(fields: dict[str, msgspec.Raw], conversation: Conversation) -> dict[str, msgspec.Raw]:
    """Fields that nobody here knows go on as they came."""
    for name in sorted(_ANTHROPICS_OWN & fields.keys()):
        if bytes(fields[name]) not in (b"null", b"[]"):
            conversation.lose(f"'{name}'")
    known = _SAID | _UNHEARD | _ANTHROPICS_OWN
    return {name: value for name, value in fields.items() if name not in known}
