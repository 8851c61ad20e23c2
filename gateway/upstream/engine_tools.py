"""Tools and tool_choice of a chat request in the bundled engine's terms. Runs nothing."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from engine.tools.types import Tool
from gateway.errors import InvalidRequestError
from gateway.upstream.engine_fields import field, unsupported
from gateway.wire.body import invalid, missing
from gateway.wire.inference import Inference, Message

MAX_TOOLS = 128  # as at OpenAI
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Toolbox(msgspec.Struct, frozen=True):
    """What an answer may call. `most`: calls in one answer, None for any number."""

    tools: tuple[Tool, ...]
    must_call: bool = False
    most: int | None = None

    @property
    def described(self) -> list[dict[str, Any]]:
        return [tool.described() for tool in self.tools]


def toolbox(inference: Inference) -> Toolbox | None:
    """None when nothing may be called. Raises InvalidRequestError."""
    for name in ("functions", "function_call"):
        if field(inference, name):
            raise unsupported(f"'{name}', which 'tools' replaced", name)
    tools = _tools(inference.tools or [])
    choice = field(inference, "tool_choice")
    if not tools or choice == "none":
        return None
    most = 1 if field(inference, "parallel_tool_calls") is False else None
    if choice in (None, "auto", "required"):
        return Toolbox(tools, must_call=choice == "required", most=most)
    if not isinstance(choice, dict):
        raise invalid("tool_choice", "expected none, auto, required or an object that names a function")
    return _chosen(tools, choice, most)


def plain(message: Message) -> dict[str, Any]:
    """A message as chat templates expect it: plain text, calls, and no roles younger than most templates."""
    if message.role == "function" or message.function_call is not None:
        raise unsupported("messages of role 'function', which 'tool' replaced", "messages")
    role = "system" if message.role == "developer" else message.role
    told: dict[str, Any] = {"role": role, "content": message.text}
    if message.tool_calls:
        if any(call.get("type", "function") != "function" for call in message.tool_calls):
            raise unsupported("calls of custom tools", "messages")
        told["tool_calls"] = message.tool_calls
    if message.tool_call_id is not None:
        told["tool_call_id"] = message.tool_call_id
    if message.role == "tool" and message.name is not None:
        told["name"] = message.name
    return told


def _tools(tools: list[dict[str, Any]]) -> tuple[Tool, ...]:
    if len(tools) > MAX_TOOLS:
        raise invalid("tools", f"expected at most {MAX_TOOLS} tools, got {len(tools)}")
    read = tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools))
    if len({tool.name for tool in read}) < len(read):
        raise invalid("tools", "two tools have the same name")
    return read


def _tool(tool: dict[str, Any], where: str) -> Tool:
    if tool["type"] != "function":
        raise unsupported(f"tools of type '{tool['type'][:64]}'", "tools")
    function = tool["function"]
    name, parameters = function["name"], function.get("parameters")
    if not _NAME.fullmatch(name):
        raise invalid(f"{where}.function.name", "expected 1 to 64 letters, digits, underscores and dashes")
    if parameters is not None and not isinstance(parameters, dict):
        raise invalid(f"{where}.function.parameters", "a JSON schema is an object")
    if parameters is not None and parameters.get("type", "object") != "object":
        raise invalid(f"{where}.function.parameters", "the schema of a function's parameters is of type 'object'")
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise invalid(f"{where}.function.description", "expected a string")
    return Tool(name=name, description=description, parameters=parameters, strict=function.get("strict") is True)


def _chosen(tools: Sequence[Tool], choice: dict[str, Any], most: int | None) -> Toolbox:
    """The object forms of tool_choice: one function by name, or some that are allowed."""
    if choice.get("type") == "function":
        return Toolbox((_named(tools, choice, "tool_choice"),), must_call=True, most=1)
    if choice.get("type") != "allowed_tools":
        raise invalid("tool_choice.type", "expected 'function' or 'allowed_tools'")
    allowed = choice.get("allowed_tools")
    if not isinstance(allowed, dict) or not isinstance(allowed.get("tools"), list) or not allowed["tools"]:
        raise missing("tool_choice.allowed_tools.tools")
    if allowed.get("mode") not in ("auto", "required"):
        raise invalid("tool_choice.allowed_tools.mode", "expected 'auto' or 'required'")
    where = "tool_choice.allowed_tools.tools"
    named = [_named(tools, entry, f"{where}[{index}]") for index, entry in enumerate(allowed["tools"])]
    return Toolbox(
        tuple({tool.name: tool for tool in named}.values()), must_call=allowed["mode"] == "required", most=most
    )


def _named(tools: Sequence[Tool], entry: Any, where: str) -> Tool:
    function = entry.get("function") if isinstance(entry, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise missing(f"{where}.function.name")
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        raise InvalidRequestError(f"Tool choice '{name[:64]}' not found in 'tools' parameter.", param="tool_choice")
    return tool
