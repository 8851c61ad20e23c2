"""Splits an answer into text and calls while it is being written. What only looks like a call is given back as text."""

from collections.abc import Callable, Sequence
from typing import Literal

from engine.tools.calls.json_text import is_json
from engine.tools.calls.notation import CallReader
from engine.tools.lookahead import begins_call, begins_calls, notation_of, overlap
from engine.tools.syntax import Syntax
from engine.tools.types import Arguments, CallBegins, Piece, Text, Tool


class ToolCallParser:
    """`tools`: what there is to call. `most`: calls beyond so many are dropped."""

    def __init__(
        self, syntax: Syntax, tools: Sequence[Tool], new_id: Callable[[], str], most: int | None = None
    ) -> None:
        self._syntax = syntax
        self._tools = {tool.name: tool for tool in tools}
        self._new_id = new_id
        self._most = 1 if syntax.is_single else most
        self.num_calls = 0
        self.is_cut_off = False  # at the end: whether the last call's arguments are no JSON
        self._pieces: list[Piece] = []
        self._inside: Literal["text", "calls"] = "text"
        self._buffer = ""  # not decided on yet
        self._blank = ""  # blanks that are text only if text follows, or if no call does
        self._has_said = False  # whether there was text since the beginning or the last call
        self._undo = ""  # what was skipped since the last call, in case that no call follows
        self._is_announced = False  # whether a marker led to where we are
        self._in_list = False
        self._reader: CallReader | None = None
        self._has_begun = False  # whether the reader's call was announced
        self._arguments: list[str] = []  # of the reader's call

    def push(self, text: str) -> list[Piece]:
        self._buffer += text
        return self._take()

    def finish(self) -> list[Piece]:
        """What was held back, now that no more comes. A call that was cut off stays as it is.

        After a call, what only began to announce another is dropped: nobody would say that.
        """
        pieces = self._take()
        held = self._buffer
        if self._inside == "calls":
            held = self._undo + (self._reader.raw if self._reader is not None else self._buffer)
            if self._reader is not None and self._has_begun:
                self._add_arguments(self._reader.rest())
                self.is_cut_off = self._is_wanted and not is_json("".join(self._arguments))
        if not self.num_calls:
            self._say(held)
            self._pieces += [Text(self._blank)] * bool(self._blank)
        elif self._inside == "text" and self._has_said:
            self._say(held)
        self._buffer = self._blank = self._undo = ""
        return pieces + self._flush()

    def _take(self) -> list[Piece]:
        while self._step():
            pass
        return self._flush()

    def _flush(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def _step(self) -> bool:
        """One decision about the buffer's beginning; False when it takes more text to decide."""
        if not self._buffer:
            return False
        if self._inside == "text":
            return self._find_calls()
        if self._reader is not None:
            return self._read_call(self._reader)
        return self._between_calls()

    def _find_calls(self) -> bool:
        if self._syntax.is_bare and not self._has_said and not self.num_calls:
            begins = begins_calls(self._buffer, self._syntax.notations, self._tools)
            if begins is None:
                return False
            if begins:
                self._enter("", self._buffer, is_announced=False)
                return True
        found = [(place, marker) for marker in self._syntax.markers if (place := self._buffer.find(marker)) >= 0]
        if not found:
            kept = max(overlap(self._buffer, marker) for marker in self._syntax.markers)
            said, self._buffer = self._buffer[: len(self._buffer) - kept], self._buffer[len(self._buffer) - kept :]
            self._say(said)
            return False
        place, marker = min(found)
        self._say(self._buffer[:place])
        if notation_of(marker, self._syntax.notations, self._tools):  # it is the call's own beginning
            marker, end = "", place
        else:
            end = place + len(marker)
        self._enter(marker, self._buffer[end:], is_announced=True)
        return True

    def _enter(self, marker: str, rest: str, *, is_announced: bool) -> None:
        self._inside, self._undo, self._in_list, self._buffer = "calls", marker, False, rest
        self._is_announced = is_announced

    def _leave(self) -> None:
        self._inside, self._undo, self._reader = "text", "", None

    def _between_calls(self) -> bool:
        """Brackets, commas, blanks; then a call, or the end of them."""
        may_follow = self._is_announced or self._in_list
        notations = [each for each in self._syntax.notations if may_follow or each.stands_alone]
        if notation := notation_of(self._buffer, notations, self._tools):
            self._reader, self._has_begun = notation.reader(self._tools), False
            return True
        if self._steps_over_end():
            self._leave()
            return True
        begins_marker = self._buffer.startswith(self._syntax.markers)
        if not begins_marker:
            expected = (*self._syntax.markers, self._syntax.end_marker)
            if begins_call(self._buffer, notations, self._tools) is None:
                return False
            if any(text.startswith(self._buffer) for text in expected):
                return False
            if self._steps_over_separator():
                return True
        self._say(self._stepped_over())
        self._leave()
        return True

    def _steps_over_end(self) -> bool:
        """Of the calls; what ends none is text."""
        end_marker = self._syntax.end_marker
        if not end_marker or not self._buffer.startswith(end_marker) or self._undo.startswith(self._syntax.markers):
            return False
        self._buffer = self._buffer[len(end_marker) :]
        return True

    def _steps_over_separator(self) -> bool:
        first = self._buffer[0]
        if not first.isspace() and first not in (",", ";", "]" if self._in_list else "["):
            return False
        self._undo += first
        if first == "]" and "[" not in self._undo:  # the end of a list that had calls
            self._undo = ""
        self._in_list = first == "[" or (self._in_list and first != "]")
        self._buffer = self._buffer[1:]
        return True

    def _stepped_over(self) -> str:
        """What was stepped over, now that no call comes; blanks behind a call are left out."""
        is_after_call = self.num_calls and not self._undo.startswith(self._syntax.markers)
        return self._undo.lstrip() if is_after_call else self._undo

    def _read_call(self, reader: CallReader) -> bool:
        fragment, self._buffer = reader.read(self._buffer)
        if reader.state == "none":
            # Only the first character is text for sure: how far the reader got depends on where the stream was cut.
            self._buffer = reader.raw[1:] + self._buffer
            self._say(self._undo + reader.raw[0])
            self._leave()
            return True
        if reader.state in ("call", "done") and not self._has_begun:
            self._has_begun, self._undo, self._blank, self._has_said = True, "", "", False
            self._arguments = []
            self.num_calls += 1
            if self._is_wanted:
                self._pieces.append(CallBegins(self.num_calls - 1, self._new_id(), reader.name))
        self._add_arguments(fragment)
        if reader.state == "done":
            self._reader = None
        return True

    @property
    def _is_wanted(self) -> bool:
        return self._most is None or self.num_calls <= self._most

    def _add_arguments(self, fragment: str) -> None:
        if fragment and self._is_wanted:
            self._arguments.append(fragment)
            self._pieces.append(Arguments(self.num_calls - 1, fragment))

    def _say(self, text: str) -> None:
        if not self._has_said and not text.strip():
            self._blank += text
        elif text:
            self._pieces.append(Text(self._blank + text))
            self._blank, self._has_said = "", True
