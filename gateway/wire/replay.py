"""A stored whole answer as the stream that a client asked for. The reverse is `assemble`.

Knows OpenAI's chunks only; where an answer comes from and what it costs is not known here.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.wire.members import decode_members, locate, replace
from gateway.wire.sse import DONE

PIECE_CHARACTERS = 24
_WORD = re.compile(r"\s*\S{1,24}|\s+\Z")
_PIECEWISE = (
    "reasoning_content",
    "reasoning",
    "content",
    "refusal",
)  # texts that streams bring bit by bit, in this order


def replay(body: bytes, *, include_usage: bool = False) -> list[bytes]:
    """The payloads of a stream that says what `body` says: role, several deltas, finish_reason, usage if asked, [DONE].

    Raises ValueError when `body` is not a chat or text completion.
    """
    try:
        answer = msgspec.json.decode(body)
        is_chat = "message" in answer["choices"][0]
        head = {name: answer[name] for name in answer if name not in ("choices", "usage", "object")}
        head["object"] = "chat.completion.chunk" if is_chat else "text_completion"
        split = _chat_deltas if is_chat else _text_deltas
        choices = [choice for whole in answer["choices"] for choice in split(whole)]
    except (msgspec.DecodeError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"not an answer that can be replayed: {error!r}") from error
    usage = answer.get("usage")
    tail: dict[str, Any] = {"usage": None} if include_usage else {}
    payloads = [msgspec.json.encode(head | {"choices": [choice]} | tail) for choice in choices]
    if include_usage and usage is not None:
        payloads.append(msgspec.json.encode(head | {"choices": [], "usage": usage}))
    payloads.append(DONE)
    return payloads


def rewrite_identity(body: bytes, id: str, created: int) -> bytes:
    """`body` as a new answer: its own `id` and time, every other byte as it was."""
    fields = decode_members(body)
    members = locate(body, fields)
    new = {"id": msgspec.json.encode(id), "created": b"%d" % created}
    spans = [(members[name], value) for name, value in new.items() if name in members]
    return replace(body, [(member.value_start, member.value_end, value) for member, value in spans])


def pieces(text: str) -> list[str]:
    """`text` in parts of a few words, cut in front of white space where there is any."""
    parts: list[str] = []
    current = ""
    for word in _WORD.findall(text):
        if current and len(current) + len(word) > PIECE_CHARACTERS:
            parts.append(current)
            current = word
        else:
            current += word
    return [*parts, current] if current else parts


def _chat_deltas(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The chunks' `choices[0]`, in order."""
    index, logprobs = choice.get("index", 0), choice.get("logprobs")
    message: dict[str, Any] = choice["message"]
    first: dict[str, Any] = {"role": message.get("role", "assistant")}
    for name, value in message.items():
        if name in _PIECEWISE:
            first[name] = "" if isinstance(value, str) else value
        elif name not in ("role", "tool_calls"):
            first[name] = value  # audio, annotations, a legacy function_call, a vendor's own: in one piece
    yield _delta(index, first)
    for name in _PIECEWISE:
        if isinstance(message.get(name), str):
            for piece in pieces(message[name]):
                yield _delta(index, {name: piece}, logprobs)
                logprobs = None
    for position, call in enumerate(message.get("tool_calls") or ()):
        yield from (_delta(index, {"tool_calls": [delta]}) for delta in _tool_call_deltas(position, call))
    yield _delta(index, {}, logprobs, choice.get("finish_reason"))


def _tool_call_deltas(position: int, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Name and id first, then the arguments (or a custom tool's input) bit by bit."""
    kind = call.get("type", "function")
    inner: dict[str, Any] = call[kind]
    text_name = "input" if kind == "custom" else "arguments"
    head = {name: value for name, value in call.items() if name != kind}
    yield {"index": position} | head | {kind: inner | {text_name: ""}}
    for piece in pieces(inner.get(text_name) or ""):
        yield {"index": position, kind: {text_name: piece}}


def _delta(index: int, delta: dict[str, Any], logprobs: Any = None, finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}


def _text_deltas(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
    index, logprobs = choice.get("index", 0), choice.get("logprobs")
    for piece in pieces(choice["text"]):
        yield {"text": piece, "index": index, "logprobs": logprobs, "finish_reason": None}
        logprobs = None
    yield {"text": "", "index": index, "logprobs": logprobs, "finish_reason": choice.get("finish_reason")}
