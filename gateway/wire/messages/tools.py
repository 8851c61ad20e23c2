"""Tools and the choice among them, in both APIs' terms."""

from typing import Any

from gateway.errors import InvalidRequestError
from gateway.wire.body import invalid, member
from gateway.wire.messages.turns import Conversation

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
_KINDS = {"auto": "auto", "any": "required", "none": "none"}


def chat_tools(tools: list[dict[str, Any]], conversation: Conversation) -> list[dict[str, Any]]:
    """Anthropic's tools as functions. Those that it runs or describes itself (web search, bash, ...) are lost."""
    functions: list[dict[str, Any]] = []
    for index, tool in enumerate(tools):
        kind = tool.get("type") or "custom"
        if kind != "custom":
            conversation.lose(f"the tool '{str(kind)[:64]}'")
            continue
        where = f"tools[{index}]"
        function = {"name": member(tool, "name", str, where)}
        function |= {name: tool[name] for name in ("description", "strict") if tool.get(name) is not None}
        parameters = member(tool, "input_schema", dict, where)
        functions.append({"type": "function", "function": function | {"parameters": parameters}})
    return functions


def chat_tool_choice(choice: dict[str, Any]) -> dict[str, Any]:
    """The fields of a chat that say the same."""
    kind = member(choice, "type", str, "tool_choice")
    if kind == "tool":
        named: Any = {"type": "function", "function": {"name": member(choice, "name", str, "tool_choice")}}
    elif kind in _KINDS:
        named = _KINDS[kind]
    else:
        raise invalid("tool_choice.type", f"{kind[:64]!r} is not one of auto, any, tool, none")
    parallel = {"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") else {}
    return {"tool_choice": named} | parallel


def anthropic_tools(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Functions as Anthropic's tools; one of another type goes on as it is, for it may well be Anthropic's own."""
    return [_anthropic_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]


def _anthropic_tool(tool: dict[str, Any], where: str) -> dict[str, Any]:
    if tool["type"] == "custom":
        raise InvalidRequestError("This model's provider has no custom tools with free text as input.", param=where)
    if tool["type"] != "function":
        return tool
    function = tool["function"]
    told = {"name": function["name"], "input_schema": function.get("parameters") or NO_PARAMETERS}
    told |= {name: function[name] for name in ("description", "strict") if function.get(name) is not None}
    if tool.get("cache_control") is not None:
        told["cache_control"] = tool["cache_control"]
    return told


def anthropic_tool_choice(choice: Any, parallel: bool | None) -> dict[str, Any] | None:
    """tool_choice and parallel_tool_calls in one; None for what is the default."""
    if choice in (None, "auto"):
        told: dict[str, Any] = {"type": "auto"}
    elif choice in ("required", "none"):
        told = {"type": "any" if choice == "required" else "none"}
    elif isinstance(choice, dict) and choice.get("type") == "function":
        function = member(choice, "function", dict, "tool_choice")
        told = {"type": "tool", "name": member(function, "name", str, "tool_choice.function")}
    else:
        raise invalid("tool_choice", "this model's provider takes none, auto, required or a named function")
    if parallel is False and told["type"] != "none":
        told["disable_parallel_tool_use"] = True
    return None if told == {"type": "auto"} else told
