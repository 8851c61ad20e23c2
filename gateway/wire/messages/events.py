"""A chat's chunks as a message's events: one block after the other, where chunks may mix their tool calls.

Reference: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.wire.messages.answer import INVALID, ending, opening, tool_input
from gateway.wire.messages.chat_answer import Call, ChatAnswer, Choice
from gateway.wire.messages.terms import message_usage
from gateway.wire.usage import Usage

TEXT: dict[str, Any] = {"type": "text", "text": ""}
THINKING: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": ""}


class Piece(msgspec.Struct, frozen=True):
    """A part of a block: of its text, its thought, or a call's arguments. `call` is the call's index in the chat."""

    kind: str
    text: str
    call: int | None = None
    id: str = ""  # at a call's beginning
    name: str = ""

    @property
    def block(self) -> tuple[str, int | None]:
        return self.kind, self.call

    def followed_by(self, other: "Piece") -> "Piece":
        return Piece(self.kind, self.text + other.text, self.call, self.id or other.id, self.name or other.name)


class MessageEvents:
    """Each method gives the events that follow, as objects. `end` once, at the end of a chat that is whole."""

    def __init__(self, stop_sequences: tuple[str, ...]) -> None:
        self._stop_sequences = stop_sequences
        self._begun = False
        self._index = -1  # of the latest block
        self._open: tuple[str, int | None] | None = None
        self._arguments = ""  # of the call that is open
        self._whole_calls: set[tuple[str, int | None]] = set()  # closed
        self._held: dict[tuple[str, int | None], Piece] = {}  # blocks that wait for the open call's last arguments
        self._ending: tuple[str, str | None] = ("end_turn", None)
        self._num_pieces = 0
        self._usage: Usage | None = None

    def feed(self, chunk: ChatAnswer) -> Iterator[dict[str, Any]]:
        if not self._begun:
            self._begun = True
            yield {"type": "message_start", "message": opening(chunk.message_id, chunk.model or "")}
            yield {"type": "ping"}
        if (usage := chunk.counted()) is not None:
            self._usage = usage.maximum(self._usage)
        choice = chunk.choices[0] if chunk.choices else Choice()
        for piece in _pieces(choice):
            self._num_pieces += 1
            if not self._must_wait(piece):
                yield from self._tell(piece)
            elif piece.block not in self._whole_calls:
                before = self._held.get(piece.block)
                self._held[piece.block] = piece if before is None else before.followed_by(piece)
        if self._ending[0] != "refusal" and (choice.finish_reason or (choice.delta and choice.delta.refusal)):
            self._ending = ending(choice, self._stop_sequences)

    def end(self) -> Iterator[dict[str, Any]]:
        for piece in self._held.values():
            yield from self._tell(piece)
        yield from self._close()
        reason, sequence = self._ending
        usage = self._usage or Usage(completion_tokens=self._num_pieces)  # unreported: a token a piece, as in the books
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        yield {"type": "message_delta", "delta": delta, "usage": message_usage(usage)}
        yield {"type": "message_stop"}

    def _must_wait(self, piece: Piece) -> bool:
        """A block is closed when another begins, so nothing may begin before the open call's arguments are whole."""
        if piece.block == self._open:
            return False
        if self._held or (piece.kind == "tool_use" and not piece.name):
            return True
        is_call = self._open is not None and self._open[0] == "tool_use"
        return is_call and (not self._arguments or INVALID in tool_input(self._arguments))

    def _tell(self, piece: Piece) -> Iterator[dict[str, Any]]:
        if piece.block != self._open:
            yield from self._close()
            self._index += 1
            self._open, self._arguments = piece.block, ""
            yield {"type": "content_block_start", "index": self._index, "content_block": _empty(piece)}
        if piece.text:
            if piece.kind == "tool_use":
                self._arguments += piece.text
            yield {"type": "content_block_delta", "index": self._index, "delta": _delta(piece)}

    def _close(self) -> Iterator[dict[str, Any]]:
        if self._open is not None:
            yield {"type": "content_block_stop", "index": self._index}
            if self._open[0] == "tool_use":
                self._whole_calls.add(self._open)
        self._open = None


def _pieces(choice: Choice) -> Iterator[Piece]:
    said = choice.delta
    if said is None:
        return
    if said.thought:
        yield Piece("thinking", said.thought)
    if said.text:
        yield Piece("text", said.text)
    for call in said.tool_calls or ():
        yield _call_piece(call)


def _call_piece(call: Call) -> Piece:
    function = call.function
    name, arguments = (function.name or "", function.arguments or "") if function is not None else ("", "")
    return Piece("tool_use", arguments, call.index or 0, call.id or "", name)


def _empty(piece: Piece) -> dict[str, Any]:
    if piece.kind == "tool_use":
        return {"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}}
    return TEXT if piece.kind == "text" else THINKING


def _delta(piece: Piece) -> dict[str, Any]:
    if piece.kind == "tool_use":
        return {"type": "input_json_delta", "partial_json": piece.text}
    if piece.kind == "text":
        return {"type": "text_delta", "text": piece.text}
    return {"type": "thinking_delta", "thinking": piece.text}
