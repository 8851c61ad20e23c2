"""Conversations with calls in them, in the shape that chat templates of the Hugging Face hub expect."""

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

Messages: TypeAlias = list[dict[str, Any]]


def with_objects(messages: Messages) -> Messages:
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
    """The arguments as an object; as they came, if they are no JSON or have half a character in them."""
    arguments = call["function"].get("arguments") or "{}"
    if not isinstance(arguments, str):
        return arguments
    try:
        read = json.loads(arguments)
        json.dumps(read, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return arguments
    return read


def one_call_a_message(messages: Messages) -> Messages:
    """Several calls of one message in as many, each followed by its results: Llama's templates take one at a time."""
    told: Messages = []
    for message, results in _with_results(messages):
        calls = message.get("tool_calls") or []
        if len(calls) < 2:
            told += [message, *results]
            continue
        for place, call in enumerate(calls):
            its_own = [result for result in results if result.get("tool_call_id") == call.get("id")]
            results = [result for result in results if result.get("tool_call_id") != call.get("id")]
            told += [message | {"content": "" if place else message["content"], "tool_calls": [call]}, *its_own]
        told += results
    return told


def _with_results(messages: Messages) -> Iterator[tuple[dict[str, Any], Messages]]:
    """Each message with the results of tools behind it."""
    begins = [place for place, message in enumerate(messages) if place == 0 or message["role"] != "tool"]
    for begin, end in zip(begins, [*begins[1:], len(messages)], strict=True):
        yield messages[begin], messages[begin + 1 : end]


def system_with_last_user(messages: Messages) -> Messages:
    """The system message as a part of the last user message, where Mistral's earlier templates have it.

    By themselves they put it there only if that message is the last of all, and else they leave it out.
    """
    places = [place for place, message in enumerate(messages) if message["role"] == "user"]
    if not places or messages[0]["role"] != "system":
        return messages
    told = list(messages)
    told[places[-1]] = told[places[-1]] | {"content": f"{messages[0]['content']}\n\n{told[places[-1]]['content']}"}
    return told[1:]
