"""Items as chat messages: what was said in the Responses API, told to a model that knows chats."""

from collections.abc import Sequence
from typing import Any

from gateway.wire.responses_api.input_items import Item

Message = dict[str, Any]


def chat_messages(instructions: str | None, items: Sequence[Item]) -> list[Message]:
    """Calls join the assistant's message that they follow, as chat has them. Reasoning has no place in a chat."""
    messages: list[Message] = [] if instructions is None else [{"role": "system", "content": instructions}]
    for item in items:
        kind = item["type"]
        if kind == "message":
            messages.append({"role": item["role"], "content": _content(item["content"])})
        elif kind == "function_call":
            _add_call(messages, item)
        elif kind == "function_call_output":
            output = item["output"]
            content = output if isinstance(output, str) else _content(output)
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
    return messages


def _add_call(messages: list[Message], item: Item) -> None:
    function = {"name": item["name"], "arguments": item["arguments"]}
    call = {"id": item["call_id"], "type": "function", "function": function}
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1].setdefault("tool_calls", []).append(call)


def _content(parts: list[Item]) -> str | list[Item]:
    """One text as a string, which every server takes; anything else as parts."""
    if len(parts) == 1 and "text" in parts[0]:
        text: str = parts[0]["text"]
        return text
    return [_part(part) for part in parts]


def _part(part: Item) -> Item:
    kind = part["type"]
    if kind == "refusal":
        return {"type": "refusal", "refusal": part["refusal"]}
    if kind == "input_image":
        detail = {} if part.get("detail") in (None, "auto") else {"detail": part["detail"]}
        return {"type": "image_url", "image_url": {"url": part["image_url"]} | detail}
    if kind == "input_file":
        named = {name: part[name] for name in ("filename", "file_data", "file_id") if part.get(name) is not None}
        return {"type": "file", "file": named}
    return {"type": "text", "text": part["text"]}
