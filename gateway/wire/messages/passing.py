"""A message on its way from a provider of the same API: what it says about tokens, end and errors. Changes no byte."""

from typing import Any

import msgspec

from gateway.wire.messages.terms import MessageUsage
from gateway.wire.usage import Usage

LAST = "message_stop"
_PRELUDE = frozenset(("message_start", "ping"))


class _Message(msgspec.Struct):
    usage: MessageUsage | None = None
    stop_reason: str | None = None


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Delta(msgspec.Struct):
    stop_reason: str | None = None


class Event(msgspec.Struct):
    type: str = ""
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: MessageUsage | None = None
    error: Any = None

    @property
    def opens(self) -> bool:
        """Whether nothing is said yet: after it, another upstream can still answer."""
        block = self.content_block
        is_empty = self.type == "content_block_start" and block is not None and block.type in ("text", "thinking")
        return self.type in _PRELUDE or (is_empty and block is not None and not block.text)


class Body(msgspec.Struct):
    """A whole message, or an error."""

    content: list[_Block] | None = None
    usage: MessageUsage | None = None
    stop_reason: str | None = None
    error: Any = None


_decode_event = msgspec.json.Decoder(Event).decode
decode_body = msgspec.json.Decoder(Body).decode
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_event(payload: bytes) -> Event | None:
    """None for what can't be read."""
    try:
        return _decode_event(payload)
    except UNREADABLE:
        return None


def read_body(body: bytes) -> Body | None:
    """None for what can't be read."""
    try:
        return decode_body(body)
    except UNREADABLE:
        return None


def without_unsigned(messages: msgspec.Raw) -> bytes:
    """The turns less the thoughts of models that sign none, which a conversation may have had before."""
    turns: list[dict[str, Any]] = msgspec.json.decode(messages)
    for turn in turns:
        if turn["role"] == "assistant" and isinstance(turn["content"], list):
            turn["content"] = [
                block for block in turn["content"] if block["type"] != "thinking" or block.get("signature")
            ]
    return msgspec.json.encode([turn for turn in turns if turn["content"]])


class MessagesReader:
    """Sees every payload of one message's stream, in order, as `gateway.wire.stream.StreamReader` does a chat's."""

    def __init__(self, *, collect: bool = False) -> None:
        self._payloads: list[bytes] | None = [] if collect else None
        self._stop_reason: str | None = None
        self.usage: Usage | None = None
        self.done = False
        self.error: Any = None
        self.num_deltas = 0

    @property
    def finished(self) -> bool:
        return self._stop_reason is not None and self.error is None

    @property
    def payloads(self) -> list[bytes]:
        return self._payloads or []

    def stop_collecting(self) -> None:
        self._payloads = None

    def feed(self, payloads: list[bytes]) -> list[bytes]:
        if self._payloads is not None:
            self._payloads += payloads
        for event in map(read_event, payloads):
            if event is not None:
                self._study(event)
        return payloads

    def _study(self, event: Event) -> None:
        self.num_deltas += event.type == "content_block_delta"
        if event.error is not None:
            self.error = event.error
        if event.delta is not None and event.delta.stop_reason:
            self._stop_reason = event.delta.stop_reason
        usage = event.usage or (event.message.usage if event.message is not None else None)
        if usage is not None:
            self.usage = usage.counted().maximum(self.usage)
