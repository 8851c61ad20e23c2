"""multipart/form-data (RFC 7578): read piece by piece, or located in a body that is whole. Knows no field by name."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from multipart import MultipartError, PushMultipartParser, parse_options_header

from gateway.errors import InvalidRequestError

MAX_PARTS = 128
_BOUNDARY = re.compile(r"[ -~]{1,200}")

Event = Any  # a MultipartSegment: a part begins; bytes: some of it; None: it ends


class FormReader:
    """Raises InvalidRequestError for what is no form, at its making and at every step."""

    def __init__(self, content_type: str | None) -> None:
        self._parser = PushMultipartParser(_boundary(content_type), max_segment_count=MAX_PARTS)

    def feed(self, piece: bytes) -> Iterator[Event]:
        try:
            yield from self._parser.parse(piece)
        except MultipartError as error:
            raise _unreadable(str(error)) from error

    def end(self) -> None:
        """The body is over: so must be the form."""
        try:
            self._parser.close()
        except MultipartError as error:
            raise _unreadable(str(error)) from error


def _boundary(content_type: str | None) -> str:
    kind, options = parse_options_header(content_type or "")
    boundary: str = options.get("boundary", "")
    if kind != "multipart/form-data" or not _BOUNDARY.fullmatch(boundary):
        raise InvalidRequestError("The body must be multipart/form-data, with its boundary in the content-type.")
    return boundary


def _unreadable(why: str) -> InvalidRequestError:
    return InvalidRequestError(f"We could not read the form in the body of your request: {why}.")


class Part(NamedTuple):
    """Of a form that is whole: its name, and where its bytes lie."""

    name: str
    start: int
    end: int


def locate_parts(raw: bytes, content_type: str | None) -> list[Part]:
    """In their order. Raises InvalidRequestError for what is no form."""
    delimiter = b"--" + _boundary(content_type).encode()
    parts: list[Part] = []
    position = 0 if raw.startswith(delimiter) else raw.find(b"\r\n" + delimiter) + 2
    if position == 1:
        raise _unreadable("it has no beginning")
    while not raw.startswith(b"--", position := position + len(delimiter)):
        head_end = raw.find(b"\r\n\r\n", position)
        end = raw.find(b"\r\n" + delimiter, head_end + 2)
        if head_end < 0 or end < 0 or len(parts) == MAX_PARTS:
            raise _unreadable("it has no end" if len(parts) < MAX_PARTS else "it has too many parts")
        parts.append(Part(_name(raw[position:head_end]), head_end + 4, max(end, head_end + 4)))
        position = end + 2
    return parts


def _name(head: bytes) -> str:
    """Of a part, from its content-disposition."""
    for line in head.decode("utf-8", "replace").split("\r\n"):
        header, _, value = line.partition(":")
        if header.strip().lower() == "content-disposition":
            return str(parse_options_header(value)[1].get("name", ""))
    return ""
