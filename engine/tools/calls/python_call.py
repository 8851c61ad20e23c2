"""Calls as Python has them: name(a=1, b="x"). Llama 3.2 and Gemma write lists of them."""

import json
import keyword
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.tools.calls.json_text import as_json, json_rule
from engine.tools.calls.notation import State, begins_with_name
from engine.tools.calls.python_literals import arguments_in
from engine.tools.schemas import Parameter, allows_others, closed, parameters_of
from engine.tools.types import Tool

_MAX_INLINE = 4  # parameters


@dataclass(slots=True, frozen=True)
class PythonCall:
    """Parameters whose names Python can't have are given as **{...}."""

    stands_alone: bool = False

    def begins(self, text: str, names: Collection[str]) -> bool | None:
        return begins_with_name(text, names, "(")

    def reader(self, tools: Mapping[str, Tool]) -> "PythonCallReader":
        return PythonCallReader(tools)

    def rules(self, rule: str, tool: Tool) -> list[str]:
        parameters = parameters_of(tool)
        if allows_others(tool) or not all(_is_name(parameter.name) for parameter in parameters):
            inside, rules = _as_object(tool)
        else:
            inside, rules = _listed(rule, parameters)
        return [f'{rule}: {json.dumps(tool.name + "(")} {inside} ")"', *rules]


class PythonCallReader:
    """Keeps a call back until its closing parenthesis: only then it is known to be one."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools
        self._inside: list[str] = []  # what stands between the parentheses
        self._depth = 0
        self._quote = ""
        self._escaped = False
        self.state: State = "open"
        self.raw = ""
        self.name = ""

    def read(self, text: str) -> tuple[str, str]:
        for place, character in enumerate(text):
            if self._closes(character):
                self.raw += text[: place + 1]
                return self._finish(), text[place + 1 :]
        self.raw += text
        return "", ""

    def rest(self) -> str:
        return ""

    def _closes(self, character: str) -> bool:
        """Whether this is the closing parenthesis. Line ends in strings are kept as Python wants them, escaped."""
        if self._depth:
            self._inside.append("\\n" if self._quote and character == "\n" else character)
        if self._quote:
            if self._escaped:
                self._escaped = False
            elif character == "\\":
                self._escaped = True
            elif character == self._quote:
                self._quote = ""
        elif character in "\"'":
            self._quote = character
        elif character in "([{":
            self._depth += 1
        elif character in ")]}":
            self._depth -= 1
            return self._depth == 0
        return False

    def _finish(self) -> str:
        name, _, _ = self.raw.partition("(")
        try:
            fragment = as_json(arguments_in("".join(self._inside[:-1]), self._tools[name]))
        except (KeyError, ValueError, TypeError):
            self.state = "none"
            return ""
        self.state, self.name = "done", name
        return fragment


def written_in_python(name: str, arguments: Any) -> str:
    """A call as `PythonCall` reads it; values in JSON's spelling, as templates in this notation write them."""
    if not isinstance(arguments, dict):
        return f"{name}({as_json(arguments)})"
    if all(map(_is_name, arguments)):
        return f"{name}({', '.join(f'{key}={as_json(value)}' for key, value in arguments.items())})"
    return f"{name}(**{as_json(arguments)})"


def _as_object(tool: Tool) -> tuple[str, list[str]]:
    return f'"**" {json_rule(closed(tool.parameters))}', []


def _listed(rule: str, parameters: Sequence[Parameter]) -> tuple[str, list[str]]:
    """Parameters in their order, with commas between those that are there; and the rules that this needs."""
    written = [f"{json.dumps(each.name + '=', ensure_ascii=False)} {json_rule(each.schema)}" for each in parameters]
    first = next((place for place, each in enumerate(parameters) if each.is_required), None)
    if first is not None:
        before = [f'({each} ", ")?' for each in written[:first]]
        after = [f'(", " {each}){"" if parameters[place].is_required else "?"}' for place, each in enumerate(written)]
        return " ".join([*before, written[first], *after[first + 1 :]]), []
    rules = []
    if len(written) > _MAX_INLINE:  # each stands there as often as it has a predecessor to be the first
        rules = [f"{rule}_{place}: {each}" for place, each in enumerate(written)]
        written = [f"{rule}_{place}" for place in range(len(written))]
    begins = [" ".join([each, *(f'(", " {later})?' for later in written[n:])]) for n, each in enumerate(written, 1)]
    return f"({' | '.join(begins)})?" if begins else "", rules


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)
