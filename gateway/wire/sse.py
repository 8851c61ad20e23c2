"""Server-sent events: bytes off the wire to data payloads, and payloads to bytes (WHATWG HTML, section 9.2).

Works on bytes throughout: characters torn at a network chunk are never decoded, so they can't break.
"""

from collections.abc import Iterable

from gateway.wire import error_event

DONE = b"[DONE]"
_BOM = b"\xef\xbb\xbf"


class EventTooLargeError(ValueError):
    """An upstream's event, or line, is longer than the parser may hold."""


class SseParser:
    """Feed chunks, get the data payloads of the events that they completed. Comments and other fields are dropped.

    Of an event named `error` the payload says so itself, whatever it came as.
    """

    __slots__ = ("_after_cr", "_data", "_max_event_bytes", "_name", "_pieces", "_size", "_started")

    def __init__(self, max_event_bytes: int = 16 * 2**20) -> None:
        self._max_event_bytes = max_event_bytes
        self._pieces: list[bytes] = []  # the unfinished line
        self._data: list[bytes] = []  # the data lines of the unfinished event
        self._name = b""  # of the unfinished event
        self._size = 0  # of all three
        self._after_cr = False  # the last chunk ended in CR: a LF that follows belongs to it
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """Raises EventTooLargeError once an unfinished event outgrows the limit."""
        if not self._size and not self._after_cr and data[:6] == b"data: " and data[-2:] == b"\n\n":
            payloads = data[6:-2].split(b"\n\ndata: ")  # the usual chunk: complete events of one data line each
            if data.count(b"\n") == 2 * len(payloads) and b"\r" not in data and b"" not in payloads:
                self._started = True
                return payloads
        return self._feed_slowly(data)

    def close(self) -> list[bytes]:
        """At the stream's end: an event that lacks only its blank line, which some servers forget after [DONE]."""
        line = b"".join(self._pieces)
        payloads: list[bytes] = []
        if self._data and not line:
            self._line(b"", payloads)
        elif _value(line) == DONE and not self._data:
            payloads.append(DONE)
        self._pieces, self._data, self._name, self._size = [], [], b"", 0
        return payloads

    def _feed_slowly(self, data: bytes) -> list[bytes]:
        payloads: list[bytes] = []
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *rest = data.split(b"\n")
        if first:
            self._pieces.append(first)
            self._size += len(first)
        for piece in rest:
            line = b"".join(self._pieces)
            self._size -= len(line)
            self._line(line, payloads)
            self._pieces = [piece] if piece else []
            self._size += len(piece)
        if self._size > self._max_event_bytes:
            raise EventTooLargeError(f"an event of more than {self._max_event_bytes} bytes")
        return payloads

    def _line(self, line: bytes, payloads: list[bytes]) -> None:
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if line:
            value = _value(line)
            if value is not None:
                self._data.append(value)
                self._size += len(value) + 1
            elif (name := _value(line, b"event")) is not None:
                self._size += len(name) - len(self._name)
                self._name = name
        elif self._data or self._name:
            payload, name = b"\n".join(self._data), self._name
            self._size -= (len(payload) + 1 if self._data else 0) + len(name)
            self._data, self._name = [], b""
            if payload:
                told = name == error_event.NAME and payload != DONE
                payloads.append(error_event.error_payload(payload) if told else payload)


def frame(payload: bytes) -> bytes:
    """One event. Line ends inside the payload (white space between JSON's tokens) become further data lines."""
    if b"\n" in payload or b"\r" in payload:
        payload = payload.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    return b"data: " + payload + b"\n\n"


def frames(payloads: Iterable[bytes]) -> bytes:
    """Several events for one write."""
    whole = list(payloads)
    joined = b"\n\ndata: ".join(whole)
    if whole and b"\r" not in joined and joined.count(b"\n") == 2 * (len(whole) - 1):
        return b"data: %b\n\n" % joined
    return b"".join(map(frame, whole))


def _value(line: bytes, field: bytes = b"data") -> bytes | None:
    """The value of a line of this field; None for comments and other fields."""
    name, colon, value = line.partition(b":")
    if name != field:
        return None
    return value.removeprefix(b" ") if colon else b""
