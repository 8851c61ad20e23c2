"""Grammars that hold an answer to calls of the tools there are, in the notation of llguidance's Lark."""

import json
from collections.abc import Sequence

from engine.errors import InvalidRequest
from engine.json_style import FREE
from engine.tools.syntax import Syntax
from engine.tools.types import Tool
from engine.types import Grammar


def forced_calls(syntax: Syntax, tools: Sequence[Tool], most: int | None, otherwise: Grammar | None = None) -> Grammar:
    """Nothing but calls: at least one, at most `most` of them. Or else JSON that `otherwise` allows."""
    rules = ["start: calls" if otherwise is None else "start: calls | answer", *_calls(syntax, tools, most)]
    if otherwise is not None:
        rules.append(f"answer: %json {_answer_schema(otherwise)}")
    return Grammar(kind="tools", source="\n".join(rules))


def _calls(syntax: Syntax, tools: Sequence[Tool], most: int | None) -> list[str]:
    more = "" if most == 1 or syntax.is_single else f" ({_text(syntax.between)} call)" + _up_to(most)
    calls = f"calls: {_text(syntax.begin)} call{more} {_text(syntax.end)}"
    call = f"call: {_text(syntax.opening)} body {_text(syntax.closing)}"
    return [calls, call, *_bodies(syntax, tools)]


def _answer_schema(otherwise: Grammar) -> str:
    try:
        schema = json.loads(otherwise.source) if otherwise.kind == "json_schema" else {"type": "object"}
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the JSON schema can't be used: {error}", "grammar") from error
    return json.dumps(schema | {"x-guidance": FREE}, ensure_ascii=False)


def announced_calls(syntax: Syntax, tools: Sequence[Tool], most: int | None) -> Grammar | None:
    """Free text, but what follows a marker is a call. None for a family that calls without one, too."""
    if not syntax.is_announced:
        return None
    marker = syntax.markers[0]
    lead = (syntax.begin + syntax.opening).removeprefix(marker)
    more = "" if most == 1 or not syntax.end else f" ({_text(syntax.between)} body)*"
    start = "start: call | TEXT" if most == 1 else "start: call* TEXT"
    rules = [
        start,
        f"call: marker {_text(lead)} body{more} {_text(syntax.closing + syntax.end)}",
        f"marker[lazy]: TEXT {_text(marker)}",
        r"TEXT: /(.|\n)*/",
    ]
    return Grammar(kind="tools", source="\n".join(rules + _bodies(syntax, tools)))


def _bodies(syntax: Syntax, tools: Sequence[Tool]) -> list[str]:
    rules = ["body: " + " | ".join(f"tool_{index}" for index in range(len(tools)))]
    for index, tool in enumerate(tools):
        rules += syntax.notations[0].rules(f"tool_{index}", tool)
    return list(dict.fromkeys(rules))


def _up_to(most: int | None) -> str:
    return "*" if most is None else f"{{0,{most - 1}}}"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""
