"""A chat's messages as the turns of an Anthropic conversation: user and assistant in turn, each a list of blocks."""

import re
from typing import Any

import msgspec

from gateway.errors import InvalidRequestError
from gateway.wire.body import invalid
from gateway.wire.inference import Message

_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,", re.ASCII)


class Turns:
    """`system`: the instructions of all system and developer messages, wherever they stood, as Anthropic's own
    compatible endpoint has it. Messages of one role that follow each other become one turn.
    """

    def __init__(self) -> None:
        self.system: list[dict[str, Any]] = []
        self.turns: list[dict[str, Any]] = []

    def add(self, message: Message, where: str) -> None:
        """Raises InvalidRequestError for what the Messages API can't say."""
        if message.role in ("system", "developer"):
            self.system += _blocks(message, where)
        elif message.role == "tool":
            self._add("user", [_result(message, where)])
        elif message.role == "assistant":
            self._add("assistant", [*_blocks(message, where), *_calls(message, where)])
        elif message.role == "user":
            self._add("user", _blocks(message, where))
        else:
            raise _unsupported("messages of role 'function', which 'tool' replaced", where)

    def _add(self, role: str, blocks: list[dict[str, Any]]) -> None:
        if self.turns and self.turns[-1]["role"] == role:
            self.turns[-1]["content"] += blocks
        elif blocks:
            self.turns.append({"role": role, "content": blocks})


def _blocks(message: Message, where: str) -> list[dict[str, Any]]:
    """Empty texts are left out: Anthropic refuses them, and they say nothing."""
    if message.function_call is not None:
        raise _unsupported("'function_call', which 'tool_calls' replaced", f"{where}.function_call")
    if message.content is None or isinstance(message.content, str):
        return [{"type": "text", "text": message.content}] if message.content else []
    parts = [_part(part, f"{where}.content[{index}]") for index, part in enumerate(message.content)]
    return [part for part in parts if part.get("text") != ""]


def _part(part: dict[str, Any], where: str) -> dict[str, Any]:
    kind = part["type"]
    if kind in ("text", "refusal"):
        block = {"type": "text", "text": part[kind]}
    elif kind == "image_url":
        block = {"type": "image", "source": _source(part["image_url"]["url"], f"{where}.image_url.url")}
    elif kind == "file" and isinstance(data := part["file"].get("file_data"), str):
        block = {"type": "document", "source": _source(data, f"{where}.file.file_data")}
        if name := part["file"].get("filename"):
            block["title"] = name
    else:
        raise _unsupported(f"parts of type '{kind}'" + (" without file_data" if kind == "file" else ""), where)
    if part.get("cache_control") is not None:  # Anthropic's own, which many chats hand on
        block["cache_control"] = part["cache_control"]
    return block


def _source(url: str, where: str) -> dict[str, Any]:
    data = _DATA_URL.match(url)
    if data is not None:
        return {"type": "base64", "media_type": data[1], "data": url[data.end() :]}
    if not url.startswith(("https://", "http://")):
        raise invalid(where, "expected an http or https URL, or a data URL in base64")
    return {"type": "url", "url": url}


def _result(message: Message, where: str) -> dict[str, Any]:
    blocks = _blocks(message, where)
    is_plain = len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
    return {
        "type": "tool_result",
        "tool_use_id": _id(message.tool_call_id),
        "content": blocks[0]["text"] if is_plain else blocks,
    }


def _calls(message: Message, where: str) -> list[dict[str, Any]]:
    return [_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(message.tool_calls or ())]


def _call(call: dict[str, Any], where: str) -> dict[str, Any]:
    if call.get("type", "function") != "function":
        raise _unsupported("calls of custom tools", where)
    function = call["function"]
    try:
        arguments: Any = msgspec.json.decode(function["arguments"] or "{}")
    except (msgspec.DecodeError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise invalid(f"{where}.function.arguments", "expected a JSON object")
    raw = msgspec.Raw((function["arguments"] or "{}").encode())  # as written: numbers keep their form
    return {"type": "tool_use", "id": _id(call["id"]), "name": function["name"], "input": raw}


def _id(id: str | None) -> str:
    """Anthropic's ids have no dots and colons, which some models' calls have."""
    return _NOT_IN_IDS.sub("_", id or "")


def _unsupported(what: str, param: str) -> InvalidRequestError:
    message = f"The provider of this model does not support {what}."
    return InvalidRequestError(message, param=param, code="unsupported_parameter")
