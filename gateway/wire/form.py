"""multipart/form-data: its boundary, and an incremental reader of its parts (RFC 7578). Knows no fields by name."""

import re
from collections.abc import Iterator
from typing import Any

from multipart import MultipartError, PushMultipartParser, parse_options_header

from gateway.errors import InvalidRequestError

MAX_PARTS = 128
_BOUNDARY = re.compile(r"[ -~]{1,200}")

Event = Any  # a MultipartSegment: a part begins; bytes: some of it; None: it ends


class FormReader:
    """Raises InvalidRequestError for what is no form, at its making and at every step."""

    def __init__(self, content_type: str | None) -> None:
        kind, options = parse_options_header(content_type or "")
        boundary = options.get("boundary", "")
        if kind != "multipart/form-data" or not _BOUNDARY.fullmatch(boundary):
            raise InvalidRequestError("The body must be multipart/form-data, with its boundary in the content-type.")
        self._parser = PushMultipartParser(boundary, max_segment_count=MAX_PARTS)

    def feed(self, piece: bytes) -> Iterator[Event]:
        try:
            yield from self._parser.parse(piece)
        except MultipartError as error:
            raise _unreadable(error) from error

    def end(self) -> None:
        """The body is over: so must be the form."""
        try:
            self._parser.close()
        except MultipartError as error:
            raise _unreadable(error) from error


def _unreadable(error: MultipartError) -> InvalidRequestError:
    return InvalidRequestError(f"We could not read the form in the body of your request: {error}.")
