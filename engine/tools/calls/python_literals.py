"""Arguments in Python's notation, as models write them: literals, with JSON's spellings where they have others."""

import ast
import re
from typing import Any

from engine.tools.calls.json_text import finite
from engine.tools.schemas import parameters_of
from engine.tools.types import Tool

_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_PYTHONS = "\n\\'\"abfnrtvxNuU01234567"
_FAILURES = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


def literal(text: str) -> Any:
    """Raises ValueError."""
    return _value(_parsed(text))


def arguments_in(text: str, tool: Tool) -> dict[str, Any]:
    """What stands between a call's parentheses, by name. Raises ValueError."""
    call = _parsed(f"f({text})")
    if not isinstance(call, ast.Call):
        raise ValueError(text)
    names = [parameter.name for parameter in parameters_of(tool)]
    found = dict(zip(names, map(_value, call.args), strict=False))
    if len(found) < len(call.args):
        raise ValueError(text)
    for keyword in call.keywords:
        value = _value(keyword.value)
        found |= {keyword.arg: value} if keyword.arg is not None else value
    return found


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(_ESCAPE.sub(_known_escape, text.strip()), mode="eval").body
    except _FAILURES as error:
        raise ValueError(text) from error


def _known_escape(escape: re.Match[str]) -> str:
    """Python keeps the backslash of an escape that it doesn't know, and warns; JSON's \\/ is a slash."""
    if escape[1] in _PYTHONS:
        return escape[0]
    return "/" if escape[1] == "/" else "\\" + escape[0]


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(_JsonSpellings().visit(node))
    except _FAILURES as error:
        raise ValueError(ast.dump(node)[:100]) from error


class _JsonSpellings(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.Constant(finite(node.value)) if isinstance(node.value, float) else node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_CONSTANTS[node.id]) if node.id in _CONSTANTS else node
