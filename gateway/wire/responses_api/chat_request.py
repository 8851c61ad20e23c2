"""A request of the Responses API as the chat request that says the same, for every backend to understand."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.errors import InvalidRequestError
from gateway.wire.body import MAX_DEPTH_MESSAGE
from gateway.wire.chat import parse_chat
from gateway.wire.inference import Inference
from gateway.wire.responses_api.conversation import chat_messages
from gateway.wire.responses_api.input_items import Item, check_resolved
from gateway.wire.responses_api.request import CreateFields, Creation, TextFormat
from gateway.wire.responses_api.tools import chat_tool_choice, chat_tools

API = "responses"
SAME = (
    "temperature",
    "top_p",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
)


def chat_inference(creation: Creation, conversation: Sequence[Item]) -> Inference:
    """`conversation`: everything said so far, the request's own items last.

    Fields that the Responses API does not know are a backend's own, and go on as they came.
    Raises InvalidRequestError.
    """
    wants, fields = creation.wants, creation.fields
    items = list(conversation)
    check_resolved(items)
    body: dict[str, Any] = {"model": wants.model, "messages": chat_messages(wants.instructions, items)}
    if creation.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    body |= _limits(wants) | _tools(wants)
    if creation.logprobs:
        body |= {"logprobs": True, "top_logprobs": wants.top_logprobs or 0}
    known = CreateFields.__struct_fields__
    body |= {name: value for name, value in fields.items() if name in SAME or name not in known}
    try:
        return msgspec.structs.replace(parse_chat(msgspec.json.encode(body)), api=API)
    except RecursionError as error:
        raise InvalidRequestError(MAX_DEPTH_MESSAGE) from error


def _limits(wants: CreateFields) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if wants.max_output_tokens is not None:
        found["max_completion_tokens"] = wants.max_output_tokens
    if wants.reasoning is not None and wants.reasoning.effort is not None:
        found["reasoning_effort"] = wants.reasoning.effort
    if wants.text is not None:
        if wants.text.verbosity is not None:
            found["verbosity"] = wants.text.verbosity
        if wants.text.format is not None and wants.text.format.type != "text":
            found["response_format"] = _response_format(wants.text.format)
    return found


def _response_format(wanted: TextFormat) -> dict[str, Any]:
    if wanted.type == "json_object":
        return {"type": "json_object"}
    names = ("name", "description", "schema", "strict")
    schema = {name: value for name in names if (value := getattr(wanted, name)) is not None}
    return {"type": "json_schema", "json_schema": schema}


def _tools(wants: CreateFields) -> dict[str, Any]:
    """Chat takes what says how to call only beside something to call."""
    if not wants.tools:
        return {}
    found: dict[str, Any] = {"tools": chat_tools(wants.tools)}
    if wants.tool_choice is not None:
        found["tool_choice"] = chat_tool_choice(wants.tool_choice)
    if wants.parallel_tool_calls is not None:
        found["parallel_tool_calls"] = wants.parallel_tool_calls
    return found
