"""POST /v1/responses: the body parsed and checked. What it says in chat's terms, `chat_request` knows."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.errors import InvalidRequestError
from gateway.wire.body import Probability, Temperature, check_model, decode_body, invalid, missing
from gateway.wire.responses_api.input_items import check_items, normalise
from gateway.wire.responses_api.shapes import check_depth
from gateway.wire.responses_api.tools import check_tool_choice, check_tools

INCLUDABLE = frozenset(
    # Those that tell of tools we don't have never have anything to include.
    (
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
        "reasoning.encrypted_content",
        "message.output_text.logprobs",
    )
)
UNSUPPORTED = ("conversation", "prompt", "context_management", "moderation")
CHATS_OWN = {  # chat's name for it -> where it stands here
    "messages": "input",
    "n": None,
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "logprobs": "include",
    "functions": "tools",
    "function_call": "tool_choice",
    "modalities": None,
    "audio": None,
}


class Reasoning(msgspec.Struct):
    effort: str | None = None
    summary: str | None = None


class TextFormat(msgspec.Struct, omit_defaults=True):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class Text(msgspec.Struct):
    format: TextFormat | None = None
    verbosity: str | None = None


class StreamOptions(msgspec.Struct):
    include_obfuscation: bool | None = None


class CreateFields(msgspec.Struct, kw_only=True):
    """A null is as good as an absent field, as at OpenAI."""

    model: str
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=16, le=2**31 - 1)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    temperature: Temperature | None = None
    top_p: Probability | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    reasoning: Reasoning | None = None
    text: Text | None = None
    truncation: Literal["auto", "disabled"] | None = None
    include: list[str] | None = None
    metadata: Annotated[dict[str, Annotated[str, Meta(max_length=512)]], Meta(max_length=16)] | None = None
    user: str | None = None
    safety_identifier: Annotated[str, Meta(max_length=64)] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    service_tier: str | None = None


class Creation(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request. `items`: its input in the one shape, each with an id but for references."""

    response_id: str
    wants: CreateFields
    fields: dict[str, msgspec.Raw]  # every top-level field, undecoded
    items: list[dict[str, Any]]

    @property
    def stored(self) -> bool:
        return bool(self.wants.store)

    @property
    def background(self) -> bool:
        return bool(self.wants.background)

    @property
    def stream(self) -> bool:
        return bool(self.wants.stream)

    @property
    def logprobs(self) -> bool:
        return bool(self.wants.top_logprobs) or "message.output_text.logprobs" in (self.wants.include or ())


_decoder = msgspec.json.Decoder(CreateFields)


def parse_create(raw: bytes, response_id: str, *, may_store: bool = True) -> Creation:
    """`may_store`: whether the operator lets responses be stored, where the client does not mind.

    Raises InvalidRequestError, with `param` naming the field at fault.
    """
    fields, wants = decode_body(raw, _decoder)
    wants.store = may_store and wants.store is not False
    check_model(wants.model)
    check_depth(raw, wants.input, wants.tools, wants.tool_choice, wants.text)
    _check_unsupported(fields)
    _check_company(wants)
    _check_text(wants.text)
    check_tools(wants.tools or [])
    check_tool_choice(wants.tool_choice, wants.tools or [])
    if isinstance(wants.input, list):
        check_items(wants.input)
    return Creation(
        response_id=response_id, wants=wants, fields=fields, items=normalise(wants.input or [], response_id)
    )


def _check_unsupported(fields: dict[str, msgspec.Raw]) -> None:
    for name in UNSUPPORTED:
        if name in fields and bytes(fields[name]) != b"null":
            message = f"Tollhouse's Responses API does not support '{name}'."
            raise InvalidRequestError(message, param=name, code="unsupported_parameter")
    for name, here in CHATS_OWN.items():
        if name in fields:
            instead = f" In the Responses API it is '{here}'." if here else ""
            message = f"Unsupported parameter: '{name}'.{instead}"
            raise InvalidRequestError(message, param=name, code="unsupported_parameter")


def _check_company(wants: CreateFields) -> None:
    if not wants.input and wants.previous_response_id is None:
        raise missing("input")
    if wants.background and not wants.store:
        raise invalid("background", "only allowed when 'store' is true: there would be nothing to ask for later")
    if wants.stream_options is not None and not wants.stream:
        raise invalid("stream_options", "only allowed when 'stream' is true")
    for index, name in enumerate(wants.include or ()):
        if name not in INCLUDABLE:
            raise invalid(f"include[{index}]", f"{name[:64]!r} is not one of {', '.join(sorted(INCLUDABLE))}")
    if any(len(key) > 64 for key in wants.metadata or ()):
        raise invalid("metadata", "a key has at most 64 characters")


def _check_text(text: Text | None) -> None:
    if text is None or text.format is None or text.format.type != "json_schema":
        return
    for name in ("name", "schema"):
        if getattr(text.format, name) is None:
            raise missing(f"text.format.{name}")
