"""Calls as JSON objects: {"name": ..., "arguments": {...}}."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from engine.tools.calls.json_text import JsonObject, as_json, json_rule, read_json
from engine.tools.calls.notation import State
from engine.tools.schemas import closed
from engine.tools.types import Tool

_NAME_FIRST = re.compile(
    r'\{\s*"name"\s*:\s*"(?P<name>[^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)', re.DOTALL
)
_FIRST_KEY = re.compile(r'\{\s*(?:"(?P<key>[^"]*)(?P<end>")?)?')
_FIRST_KEYS = ("name", "arguments", "parameters", "type", "function", "id")


@dataclass(slots=True, frozen=True)
class JsonCall:
    """Read with "arguments" or "parameters", in any order; written with the name first and then `arguments_key`."""

    arguments_key: str = "arguments"
    stands_alone: bool = True

    def begins(self, text: str, names: Collection[str]) -> bool | None:
        return text.startswith("{") if text else None

    def reader(self, tools: Mapping[str, Tool]) -> "JsonCallReader":
        return JsonCallReader(tools.keys())

    def rules(self, rule: str, tool: Tool) -> list[str]:
        lead = f'{{"name": {json.dumps(tool.name)}, "{self.arguments_key}": '
        # A schema of its own for each: its "$ref"s count from its root.
        return [f'{rule}: {json.dumps(lead)} {json_rule(closed(tool.parameters))} "}}"']


class JsonCallReader:
    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._whole = JsonObject()
        self._arguments: JsonObject | None = None
        self.state: State = "open"
        self.raw = ""
        self.name = ""

    def read(self, text: str) -> tuple[str, str]:
        _, end = self._whole.read(text)
        piece, rest = (text, "") if end is None else (text[:end], text[end:])
        self.raw += piece
        fragment = self._fragment(piece)
        if end is not None:
            fragment += self._finish()
        elif self.state == "open" and not _may_be_a_call(self.raw):
            self.state = "none"
        return fragment, rest

    def rest(self) -> str:
        return ""

    def _fragment(self, piece: str) -> str:
        """What `piece` has of the arguments, once the object has said whose they are."""
        if self.state == "open":
            begin = _NAME_FIRST.match(self.raw)
            if begin is None or begin["name"] not in self._names:
                return ""
            self.state, self.name, self._arguments = "call", begin["name"], JsonObject()
            piece = self.raw[begin.end() :]
        if self._arguments is None:
            return ""
        fragment, end = self._arguments.read(piece)
        if end is not None:
            self._arguments = None
        return fragment

    def _finish(self) -> str:
        """The arguments of a call that was written in another order, now that all of it is there."""
        if self.state == "call":
            self.state = "done"
            return ""
        name, arguments = _call(self.raw)
        if not isinstance(name, str) or name not in self._names or not isinstance(arguments, dict):
            self.state = "none"
            return ""
        self.state, self.name = "done", name
        return as_json(arguments)


def _may_be_a_call(raw: str) -> bool:
    first = _FIRST_KEY.match(raw)
    assert first is not None, "an object begins with a brace"
    key = first["key"]
    if key is None:
        return first.end() == len(raw)
    return key in _FIRST_KEYS if first["end"] else any(known.startswith(key) for known in _FIRST_KEYS)


def _call(raw: str) -> tuple[Any, Any]:
    """Name and arguments, wherever in the object they are."""
    try:
        call = read_json(raw)
    except ValueError:
        return None, None
    if isinstance(inner := call.get("function"), dict):
        call = inner
    arguments = call.get("arguments", call.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments)
        except ValueError:
            return None, None
    return call.get("name"), arguments
