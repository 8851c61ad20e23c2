"""multipart/form-data (RFC 7578): read piece by piece, or located in a body that is whole. Knows no field by name."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from multipart import MultipartError, PushMultipartParser, parse_options_header

from gateway.errors import InvalidRequestError

MAX_PARTS = 128
_BOUNDARY = re.compile(r"[ -~]{1,200}")
_OPTION = re.compile(r';\s*([^\s=;"]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]*)\s*')

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
    """In their order. Raises InvalidRequestError for what is no form, and for one that two readers could read in two
    ways: who passes it on would read other parts than we.
    """
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
    if raw.count(delimiter) != len(parts) + 1:
        raise _unreadable("its boundary stands where no part begins or ends")
    return parts


def _name(head: bytes) -> str:
    """Of a part, from its content-disposition, which has to say it plainly and once."""
    first, *rest = head.decode("utf-8", "replace").split("\r\n")
    if first.strip(" \t") or any("\n" in line or "\r" in line for line in rest):
        raise _unreadable("a part's head has no plain lines")
    lines = [line.partition(":") for line in rest]
    found = [value for header, _, value in lines if header.strip().lower() == "content-disposition"]
    if len(found) != 1:
        raise _unreadable("a part has no disposition, or more than one")
    start = found[0].find(";")
    options: list[tuple[str, str]] = _OPTION.findall(found[0], max(start, 0))
    names = [value for option, value in options if option.lower().partition("*")[0] == "name"]
    is_read = start > 0 and not _OPTION.sub("", found[0][start:]).strip("; ")
    if not is_read or len(names) != 1 or "\\" in names[0] or all(option != "name" for option, _ in options):
        raise _unreadable("a part has no plain name, or more than one")
    return names[0].strip('"')
