"""Tools and tool choices: the Responses API writes flat what chat writes nested. Functions only."""

from typing import Any

import msgspec

from gateway.errors import InvalidRequestError
from gateway.wire.body import invalid
from gateway.wire.responses_api.shapes import shaped

MODES = ("none", "auto", "required")


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Named(msgspec.Struct):
    name: str


class _Allowed(msgspec.Struct):
    mode: str
    tools: list[dict[str, Any]]


def check_tools(tools: list[dict[str, Any]]) -> None:
    """Raises InvalidRequestError for a tool that is no function, or a misshapen one."""
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        _check_kind(tool, where)
        shaped(tool, _Function, where)


def check_tool_choice(choice: str | dict[str, Any] | None, tools: list[dict[str, Any]]) -> None:
    """Raises InvalidRequestError, also for a choice of what is not there."""
    if choice is None or choice in ("none", "auto"):
        return
    names = {tool["name"] for tool in tools}
    if isinstance(choice, str):
        if choice not in MODES:
            raise invalid("tool_choice", f"{choice[:64]!r} is not one of {', '.join(MODES)}")
        if not names:
            raise invalid("tool_choice", "only allowed when 'tools' are given")
        return
    if choice.get("type") == "allowed_tools":
        allowed = shaped(choice, _Allowed, "tool_choice")
        if allowed.mode not in ("auto", "required"):
            raise invalid("tool_choice.mode", f"{allowed.mode[:64]!r} is not one of auto, required")
        for index, tool in enumerate(allowed.tools):
            _check_named(tool, f"tool_choice.tools[{index}]", names)
    else:
        _check_named(choice, "tool_choice", names)


def _check_named(choice: dict[str, Any], where: str, names: set[str]) -> None:
    _check_kind(choice, where)
    name = shaped(choice, _Named, where).name
    if name not in names:
        raise invalid(where, f"there is no tool {name[:64]!r} among 'tools'")


def _check_kind(tool: dict[str, Any], where: str) -> None:
    kind = tool.get("type")
    if kind != "function":
        message = f"Tollhouse has no tool of type {str(kind)[:64]!r}: only 'function' tools are supported."
        raise InvalidRequestError(message, param=f"{where}.type", code="unsupported_tool")


def chat_tools(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As chat takes them; what nobody said stays unsaid."""
    names = ("name", "description", "parameters", "strict")
    return [
        {"type": "function", "function": {name: tool[name] for name in names if tool.get(name) is not None}}
        for tool in tools
    ]


def chat_tool_choice(choice: str | dict[str, Any]) -> str | dict[str, Any]:
    if isinstance(choice, str):
        return choice
    if choice["type"] == "allowed_tools":
        tools = [_chat_named(tool) for tool in choice["tools"]]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice["mode"], "tools": tools}}
    return _chat_named(choice)


def told_tools(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As a response object repeats them, with what was meant where nothing was said."""
    silent = {"description": None, "parameters": None}
    return [silent | tool | {"strict": bool(tool.get("strict"))} for tool in tools]


def _chat_named(choice: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": choice["name"]}}
