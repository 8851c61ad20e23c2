"""Conversations with calls in them, in the shape that chat templates of the Hugging Face hub expect."""

import json
from typing import Any


def with_objects(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OpenAI's messages with the arguments of calls as objects, and text in place of null.

    https://huggingface.co/docs/transformers/chat_extras
    """
    return [_with_objects(message) for message in messages]


def _with_objects(message: dict[str, Any]) -> dict[str, Any]:
    message = message | {"content": "" if message.get("content") is None else message["content"]}
    if message.get("tool_calls"):
        message["tool_calls"] = [_with_object(call) for call in message["tool_calls"]]
    else:
        message.pop("tool_calls", None)
    return message


def _with_object(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {"type": "function"} | call | {"function": function | {"arguments": arguments_of(call)}}


def arguments_of(call: dict[str, Any]) -> Any:
    """The arguments as an object; as they came, if they are no JSON."""
    arguments = call["function"].get("arguments") or "{}"
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def written_calls(message: dict[str, Any]) -> list[str]:
    """The calls of a message as JSON texts {"name": ..., "arguments": ...}."""
    return [
        json.dumps({"name": call["function"]["name"], "arguments": arguments_of(call)}, ensure_ascii=False)
        for call in message.get("tool_calls") or ()
    ]
