"""Calls as XML, as Qwen3-Coder writes them: a <function=...> of <parameter=...>s, whose values are plain text.

https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from engine.tools.calls.json_text import as_json
from engine.tools.calls.notation import State
from engine.tools.calls.xml_grammar import function_rules
from engine.tools.calls.xml_values import json_of
from engine.tools.schemas import Parameter, parameters_of, types_of
from engine.tools.types import Tool

_FUNCTION = "<function="
_BEGIN = re.compile(r"<function=([^<>\n]{1,64})>")
_MAX_BEGIN = len(_FUNCTION) + 65
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]+)>")
_END = re.compile(r"\s*</function>")
_VALUE_END = "</parameter>"


@dataclass(slots=True, frozen=True)
class XmlCall:
    stands_alone: bool = False

    def begins(self, text: str, names: Collection[str]) -> bool | None:
        return True if text.startswith(_FUNCTION) else None if _FUNCTION.startswith(text) else False

    def reader(self, tools: Mapping[str, Tool]) -> "XmlCallReader":
        return XmlCallReader(tools)

    def rules(self, rule: str, tool: Tool) -> list[str]:
        return function_rules(rule, tool)


class XmlCallReader:
    """A value's text goes out while it is written where its schema says that it is one; others wait for their end.

    What is neither a parameter nor the function's end ends the call, and is left to be text.
    """

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools
        self._parameters: dict[str, Parameter] = {}
        self._value: _Value | None = None
        self._num_values = 0
        self._held = ""  # not decided on yet
        self.state: State = "open"
        self.raw = ""
        self.name = ""

    def read(self, text: str) -> tuple[str, str]:
        self.raw += text if self.state == "open" else ""
        self._held += text
        fragments = []
        while self.state != "none":
            fragment = self._step()
            if fragment is None:
                break
            fragments.append(fragment)
        rest = ""
        if self.state == "done":
            rest, self._held = self._held, ""
        return "".join(fragments), rest

    def rest(self) -> str:
        return self._value.cut_off(self._held) if self._value is not None else ""

    def _step(self) -> str | None:
        """What one decision about the text adds to the arguments; None when it takes more text, or no more."""
        if self.state == "open":
            return self._begin()
        if self.state == "done":
            return None
        if self._value is not None:
            return self._read_value(self._value)
        return self._between_values()

    def _begin(self) -> str | None:
        found = _BEGIN.match(self._held)
        if found is None or found[1] not in self._tools:
            if found is not None or len(self._held) > _MAX_BEGIN or "\n" in self._held:
                self.state = "none"
            return None
        self.state, self.name = "call", found[1]
        self._parameters = {each.name: each for each in parameters_of(self._tools[self.name])}
        self._held = self._held[found.end() :]
        return "{"

    def _between_values(self) -> str | None:
        if found := _PARAMETER.match(self._held):
            self._held = self._held[found.end() :]
            self._value = _Value(self._parameters.get(found[1]))
            self._num_values += 1
            return f"{', ' if self._num_values > 1 else ''}{as_json(found[1])}: "
        if found := _END.match(self._held):
            self._held = self._held[found.end() :]
        elif _may_go_on(self._held.lstrip()):
            return None
        self.state = "done"
        return "}"

    def _read_value(self, value: "_Value") -> str | None:
        fragment, self._held = value.read(self._held)
        if value.is_done:
            self._value = None
        elif not fragment:
            return None
        return fragment


class _Value:
    """`parameter`: what the schema says of it; None if nothing. One line end at either end is the notation's."""

    def __init__(self, parameter: Parameter | None) -> None:
        self._schema = parameter.schema if parameter is not None else {}
        self._is_text = types_of(self._schema) == {"string"}
        self._has_begun = False
        self._searched = 0  # of what is held, where its end can't begin
        self.is_done = False

    def read(self, held: str) -> tuple[str, str]:
        """What `held` adds, and what of it remains to be held, or to be read by others once the value is done."""
        end = held.find(_VALUE_END, max(0, self._searched - len(_VALUE_END)))
        if end >= 0:
            self.is_done = True
            return self._last(held[:end].removesuffix("\n")), held[end + len(_VALUE_END) :]
        self._searched = len(held)
        if not self._is_text or len(held) <= len(_VALUE_END) + 1:
            return "", held
        place = len(held) - len(_VALUE_END)  # of the text's last line end, perhaps, and what may follow it
        piece, rest = held[:place], held[place:]
        self._searched = len(rest)
        return self._text(piece), rest

    def cut_off(self, held: str) -> str:
        return self._text(held) if self._is_text else json_of(held.strip(), {})

    def _last(self, held: str) -> str:
        if self._is_text:
            return self._text(held) + '"'
        return json_of(held.removeprefix("\n"), self._schema)

    def _text(self, piece: str) -> str:
        if not self._has_begun:
            self._has_begun = True
            return '"' + json.dumps(piece.removeprefix("\n"), ensure_ascii=False)[1:-1]
        return json.dumps(piece, ensure_ascii=False)[1:-1]


def _may_go_on(text: str) -> bool:
    if text.startswith("<parameter="):
        return not {"<", ">", "\n"} & set(text[1:])
    return any(tag.startswith(text) for tag in ("<parameter=", "</function>"))
