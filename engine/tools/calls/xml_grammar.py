"""What an XML call may be, as Lark rules. Values of texts are not quoted, so their schemas become expressions."""

import json
import re
from typing import Any

from engine.errors import InvalidRequest
from engine.tools.calls.json_text import json_rule
from engine.tools.schemas import allows_others, alternatives, parameters_of, types_of, values_of
from engine.tools.types import Tool

_END = "\n</parameter>\n"
_ANY_TEXT = r"/[\s\S]*/"  # line ends, too
_MAX_INLINE = 50  # listed values
_ANY_RULE = "any_text"  # the same for all


def function_rules(rule: str, tool: Tool) -> list[str]:
    """Parameters in the schema's order. Others, where the schema allows them, come last, each as any text."""
    parts, rules = [], []
    for place, parameter in enumerate(parameters_of(tool)):
        values, more = _values(f"{rule}_{place}", parameter.schema)
        begin = json.dumps(f"<parameter={parameter.name}>\n", ensure_ascii=False)
        parts.append(f"({begin} ({' | '.join(values)}))" + ("" if parameter.is_required else "?"))
        rules += more
    if allows_others(tool):
        parts.append(rf'("<parameter=" /[^<>\n]{{1,64}}/ ">\n" {_ANY_RULE})*')
        rules.append(_text_rule(_ANY_RULE, _ANY_TEXT))
    begin = json.dumps(f"<function={tool.name}>\n")
    return [f'{rule}: {begin} {" ".join(parts)} "</function>"', *rules]


def _values(rule: str, schema: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What may stand behind a parameter's name, its end included; and the rules that this needs."""
    values: list[str] = []
    rules: list[str] = []
    for place, each in enumerate(alternatives(schema)):
        listed = values_of(each)
        if listed is not None:
            choices = [_choice(value) for value in listed]
            if len(choices) <= _MAX_INLINE:
                values += choices
            else:  # one terminal for all: as parts of a rule, thousands take seconds
                values.append(f"{rule}_{place}".upper())
                rules.append(f"{values[-1]}: {' | '.join(choices)}")
        elif "string" in types_of(each):
            text = _text(each)
            values.append(_ANY_RULE if text == _ANY_TEXT else f"{rule}_{place}")
            rules.append(_text_rule(values[-1], text))
        else:
            values.append(f"{json_rule(each)} {json.dumps(_END)}")
    return values, rules


def _choice(value: Any) -> str:
    return json.dumps((value if isinstance(value, str) else json.dumps(value)) + _END, ensure_ascii=False)


def _text_rule(rule: str, text: str) -> str:
    """A text and its end, which is the first that comes."""
    return f"{rule}[lazy]: {text} {json.dumps(_END)}"


def _text(schema: dict[str, Any]) -> str:
    """As expressions, one behind the other. Of the keywords that bind texts, `format` is not held to."""
    if isinstance(pattern := schema.get("pattern"), str):
        return _whole(pattern)
    least, most = _length(schema, "minLength"), _length(schema, "maxLength")
    if not least and most is None:
        return _ANY_TEXT
    return rf"/[\s\S]{{{least or 0},{'' if most is None else most}}}/"


def _length(schema: dict[str, Any], keyword: str) -> int | None:
    length = schema.get(keyword)
    if length is not None and (not isinstance(length, int) or length < 0):
        raise InvalidRequest(f"the tools' schemas can't be used: {keyword} is no length", "grammar")
    return length


def _whole(pattern: str) -> str:
    """The pattern with what may stand around it: JSON Schema looks for it anywhere in a text."""
    begin, inner = ("", pattern[1:]) if pattern.startswith("^") else (_ANY_TEXT, pattern)
    closes = inner.endswith("$") and not inner.endswith("\\$")
    inner, end = (inner[:-1], "") if closes else (inner, _ANY_TEXT)
    return " ".join(filter(None, [begin, f"/{_for_lark(inner)}/" if inner else "", end]))


def _for_lark(expression: str) -> str:
    """Slashes escaped, once, and line ends written out: Lark writes an expression between slashes, on one line."""
    expression = re.sub(r"\\(\n|.)|(/)", lambda found: r"\/" if found[0] in ("/", r"\/") else found[0], expression)
    return expression.replace("\\\n", r"\n").replace("\n", r"\n").replace("\r", r"\r")
