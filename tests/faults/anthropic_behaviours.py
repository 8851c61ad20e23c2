"""Behaviours of a provider of Anthropic's Messages API, on the same misbehaving upstream. All begin with "claude"."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tests.faults.misbehaving import Script, Wire

CLAUDES: dict[str, Script] = {}
FOREVER_S = 60.0
USAGE = {"input_tokens": 11, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 300, "output_tokens": 7}
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
ODD = "日本語 🙂 naïve"


def behaviour(*names: str) -> Callable[[Script], Script]:
    def register(script: Script) -> Script:
        for name in names:
            CLAUDES[name] = script
        return script

    return register


def message(*content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    base = {"id": "msg_01X", "type": "message", "role": "assistant", "model": "claude-mock", "content": list(content)}
    return base | {"stop_reason": "end_turn", "stop_sequence": None, "usage": USAGE} | fields


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def tool_use(id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "weather", "input": arguments}


def failure(kind: str, said: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": said}, "request_id": "req_up"}


WHOLE = {
    "claude": message(text("Hello there.")),
    "claude-tools": message(
        text("Let me see."), tool_use("toolu_1", city="Paris"), tool_use("toolu_2", city="Lima"), stop_reason="tool_use"
    ),
    "claude-no-arguments": message(tool_use("toolu_1"), stop_reason="tool_use"),
    "claude-thinks": message(THINKING, text("Yes.")),
    "claude-odd": message(text(ODD)),
    "claude-stops": message(text("One, "), stop_reason="stop_sequence", stop_sequence="two"),
    "claude-length": message(text("Once upon"), stop_reason="max_tokens"),
    "claude-refuses": message(stop_reason="refusal"),
    "claude-pauses": message(text("Still searching."), stop_reason="pause_turn"),
}


def events(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """A message as the API streams it: texts and arguments in pieces of three characters."""
    usage = whole["usage"]
    start = whole | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage | {"output_tokens": 1}}
    told: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        told += _block(index, block)
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]}
    told.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage["output_tokens"]}})
    return [*told, {"type": "message_stop"}]


def _block(index: int, block: dict[str, Any]) -> list[dict[str, Any]]:
    kind = block["type"]
    empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}[kind]
    written = json.dumps(block["input"]) if kind == "tool_use" and block["input"] else block.get(kind, "")
    name, member = {
        "text": ("text_delta", "text"),
        "thinking": ("thinking_delta", "thinking"),
        "tool_use": ("input_json_delta", "partial_json"),
    }[kind]
    deltas = [{"type": name, member: written[place : place + 3]} for place in range(0, len(written), 3)]
    if kind == "thinking":
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    around: dict[str, Any] = {"index": index}
    return [
        {"type": "content_block_start", "content_block": block | empty} | around,
        *({"type": "content_block_delta", "delta": delta} | around for delta in deltas),
        {"type": "content_block_stop"} | around,
    ]


def framed(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


async def tell(wire: Wire, told: list[dict[str, Any]], pause: float = 0.0) -> None:
    await wire.start_events()
    for event in told:
        await wire.piece(framed(event), pause)


@behaviour(*WHOLE)
async def answers(wire: Wire) -> None:
    if wire.request.path.endswith("/count_tokens"):
        await wire.json({"input_tokens": 42})
    elif wire.request.path.endswith("/messages"):
        whole = WHOLE[wire.request.behaviour]
        if not wire.request.json.get("stream"):
            await wire.json(whole, headers={"request-id": "req_up", "anthropic-organization-id": "the operator's"})
        else:
            await tell(wire, events(whole))
            await wire.end(done=False)
    else:
        await wire.json(failure("not_found_error", "Not found"), "404 Not Found")


@behaviour("claude-split")  # three bytes at a time
async def split(wire: Wire) -> None:
    await wire.start_events()
    data = b"".join(map(framed, events(WHOLE["claude-odd"])))
    for start in range(0, len(data), 3):
        await wire.piece(data[start : start + 3])
    await wire.end(done=False)


@behaviour("claude-cut", "claude-short", "claude-stall", "claude-breaks")
async def breaks(wire: Wire) -> None:
    await tell(wire, events(WHOLE["claude"])[:5], 0.02)
    match wire.request.behaviour:
        case "claude-cut":
            wire.reset()
        case "claude-short":
            await wire.end(done=False)
        case "claude-stall":
            await asyncio.sleep(FOREVER_S)
        case "claude-breaks":
            await wire.piece(framed(failure("overloaded_error", "Overloaded")))
            await wire.end(done=False)


@behaviour("claude-error-first")  # before a word is said
async def error_first(wire: Wire) -> None:
    await tell(wire, [*events(WHOLE["claude"])[:3], failure("overloaded_error", "Overloaded")], 0.01)
    await wire.end(done=False)


@behaviour("claude-nonsense")
async def nonsense(wire: Wire) -> None:
    await wire.json({"hello": "world"})


REFUSALS = {
    "claude-400": ("400 Bad Request", "invalid_request_error", "messages: text content blocks must be non-empty"),
    "claude-long": ("400 Bad Request", "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
    "claude-401": ("401 Unauthorized", "authentication_error", "invalid x-api-key sk-upstream-secret"),
    "claude-404": ("404 Not Found", "not_found_error", "model: claude-404"),
    "claude-429": ("429 Too Many Requests", "rate_limit_error", "This request would exceed your rate limit"),
    "claude-500": ("500 Internal Server Error", "api_error", "Internal server error"),
    "claude-529": ("529 Overloaded", "overloaded_error", "Overloaded"),
}


@behaviour(*REFUSALS)
async def refuses(wire: Wire) -> None:
    status, kind, said = REFUSALS[wire.request.behaviour]
    later = {"retry-after": "7"} if status[:3] in ("429", "529") else {}
    await wire.json(failure(kind, said), status, headers=later)


@behaviour("claude-recovers")  # overloaded once
async def recovers(wire: Wire) -> None:
    if wire.index == 0:
        await wire.json(failure("overloaded_error", "Overloaded"), "529 Overloaded")
    else:
        await wire.json(WHOLE["claude"])
