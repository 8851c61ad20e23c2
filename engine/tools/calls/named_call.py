"""Calls as a name and a JSON object behind it, as Mistral's newer tokenisers write them: name[ARGS]{...}."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from engine.tools.calls.json_text import JsonObject, json_rule
from engine.tools.calls.notation import State, begins_with_name
from engine.tools.schemas import closed
from engine.tools.types import Tool

_HEAD = re.compile(r"(?P<name>[\w-]+)(?:\[CALL_ID\]\w{0,40})?(?:\[ARGS\])?\s{0,8}")
_MAX_HEAD = 160  # characters: a name has 64 at most


@dataclass(slots=True, frozen=True)
class NamedCall:
    """`has_id`: a call's id stands between name and arguments, as the tokeniser v11 has it."""

    has_id: bool = False
    stands_alone: bool = False

    def begins(self, text: str, names: Collection[str]) -> bool | None:
        return begins_with_name(text, names, ("[CALL_ID]", "[ARGS]", "{", " {"))

    def reader(self, tools: Mapping[str, Tool]) -> "NamedCallReader":
        return NamedCallReader(tools.keys())

    def rules(self, rule: str, tool: Tool) -> list[str]:
        lead = json.dumps(tool.name) + (' "[CALL_ID]" /[a-zA-Z0-9]{9}/' if self.has_id else "")
        return [f'{rule}: {lead} "[ARGS]" {json_rule(closed(tool.parameters))}']


class NamedCallReader:
    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._arguments = JsonObject()
        self.state: State = "open"
        self.raw = ""
        self.name = ""

    def read(self, text: str) -> tuple[str, str]:
        if self.state == "call":
            return self._read_arguments(text)
        head, brace, rest = (self.raw + text).partition("{")
        found = _HEAD.fullmatch(head)
        if found is not None and found["name"] in self._names and brace:
            self.state, self.name, self.raw = "call", found["name"], head
            return self._read_arguments(brace + rest)
        self.raw += text
        if brace or len(head) > _MAX_HEAD:
            self.state = "none"
        return "", ""

    def rest(self) -> str:
        return ""

    def _read_arguments(self, text: str) -> tuple[str, str]:
        fragment, end = self._arguments.read(text)
        if end is None:
            return fragment, ""
        self.state = "done"
        return fragment, text[end:]
