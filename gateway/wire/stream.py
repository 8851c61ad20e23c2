"""Reads a stream's payloads as they pass: what they say about tokens and the end, and what of them the client may see.

A chunk is searched as bytes first and parsed only when there is something in it. Knows no network.
"""

import re
from typing import Any

import msgspec

from gateway.wire.members import remove
from gateway.wire.sse import DONE
from gateway.wire.usage import Usage, read_usage

# Inside a JSON string every quote is escaped, so none of these can come from an answer's text.
_FINISH = re.compile(rb'"finish_reason"[ \t\n\r]*:[ \t\n\r]*"')
_NULL_USAGE = b',"usage":null'
# A member of the outermost object, since only plain members and that object's brace follow it to the payload's end.
_NULL_USAGE_LAST = rb',"usage":null((?:,"[^"\\]*":(?:"[^"\\]*"|null|true|false|[0-9]+))*\}%b)'
_NULL_USAGE_OF_ONE = re.compile(_NULL_USAGE_LAST % rb"\Z")
_NULL_USAGE_OF_EACH = re.compile(_NULL_USAGE_LAST % b"$", re.MULTILINE)  # a line each
_TOLD_LAST = 3  # of payloads that came together, how many are looked at one by one: what they tell comes at the end


class _Choice(msgspec.Struct):
    index: int = 0
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw()
    error: Any = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class StreamReader:
    """Sees every payload of one answer's stream, in order.

    `client_wants_usage`: the client asked for usage itself; otherwise what usage the stream carries is taken out again.
    `num_choices`: how many choices must finish (n times the number of prompts).
    `collect`: keep the payloads, as they came, for `assemble`.
    """

    __slots__ = (
        "_client_wants_usage",
        "_num_choices",
        "_payloads",
        "done",
        "error",
        "finish_reasons",
        "num_deltas",
        "usage",
    )

    def __init__(self, *, client_wants_usage: bool, num_choices: int = 1, collect: bool = False) -> None:
        self._client_wants_usage = client_wants_usage
        self._num_choices = num_choices
        self._payloads: list[bytes] | None = [] if collect else None
        self.usage: Usage | None = None
        self.finish_reasons: dict[int, str] = {}  # by choice
        self.done = False  # [DONE] came
        self.error: Any = None  # the `error` member of a payload, when the upstream broke off with one
        self.num_deltas = 0  # payloads with something for the client: about as many as tokens

    @property
    def finished(self) -> bool:
        """Whether every choice has come to its end: without that, the stream was cut."""
        return len(self.finish_reasons) >= self._num_choices and self.error is None

    @property
    def payloads(self) -> list[bytes]:
        """What was collected; empty when nothing was to be."""
        return self._payloads or []

    def stop_collecting(self) -> None:
        """Drops what was collected; nothing more is."""
        self._payloads = None

    def feed(self, payloads: list[bytes]) -> list[bytes]:
        """What the client is to get of these payloads: themselves, less, or nothing of some."""
        if DONE in payloads:
            self.done = True
            return [*self.feed(payloads[: payloads.index(DONE)]), DONE]
        if self._payloads is not None:
            self._payloads += payloads
        many, last = payloads[:-_TOLD_LAST], payloads[-_TOLD_LAST:]
        passed = self._pass_together(many) if many else []
        if passed is None:
            passed, last = [], payloads
        return [*passed, *(kept for payload in last if (kept := self._pass(payload)) is not None)]

    def _pass_together(self, payloads: list[bytes]) -> list[bytes] | None:
        """Those of which each has something to say and none tells us anything; None: they have to be looked at."""
        told = b"\n".join(payloads)
        if told.count(b"\n") >= len(payloads) or b'"error"' in told or _FINISH.search(told):
            return None
        if b'"usage"' in told:
            if self._client_wants_usage:
                if told.count(b'"usage"') != told.count(_NULL_USAGE):
                    return None
            else:
                told = _NULL_USAGE_OF_EACH.sub(rb"\1", told)
                if b'"usage"' in told:
                    return None
                payloads = told.split(b"\n")
        self.num_deltas += len(payloads)
        return payloads

    def _pass(self, payload: bytes) -> bytes | None:
        has_usage = b'"usage"' in payload
        if has_usage and self._client_wants_usage:
            has_usage = _NULL_USAGE not in payload or payload.count(b'"usage"') > 1
        elif has_usage:
            payload = _NULL_USAGE_OF_ONE.sub(rb"\1", payload)
            has_usage = b'"usage"' in payload
        if has_usage or b'"error"' in payload or _FINISH.search(payload):
            return self._study(payload, has_usage)
        self.num_deltas += 1
        return payload

    def _study(self, payload: bytes, has_usage: bool) -> bytes | None:
        try:
            chunk = _decode_chunk(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.num_deltas += 1
            return payload  # not ours to judge: it goes to the client as it came
        for choice in chunk.choices or ():
            if choice.finish_reason:
                self.finish_reasons[choice.index] = choice.finish_reason
        if chunk.error is not None:
            self.error = chunk.error
            return payload
        usage = read_usage(chunk.usage)
        if usage is not None:
            self.usage = usage.maximum(self.usage)
        if chunk.choices:
            self.num_deltas += 1
        if not has_usage or self._client_wants_usage:
            return payload
        if len(chunk.usage) and not chunk.choices:
            return None
        return remove(payload, "usage")
