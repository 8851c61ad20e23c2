"""Undoes gzip and deflate, for upstreams that compress although we ask them not to. Knows no other encoding."""

import zlib

import httpx

EITHER_WRAPPER = zlib.MAX_WBITS | 32  # gzip's and zlib's headers are told apart by themselves
CODINGS = {"gzip", "x-gzip", "deflate"}


class Inflater:
    def __init__(self, coding: str) -> None:
        """Raises httpx.DecodingError for an encoding other than gzip and deflate."""
        if coding not in CODINGS:
            raise httpx.DecodingError(f"the answer is encoded with {coding!r}, which was not asked for")
        self._coding = coding
        self._inflate = zlib.decompressobj(EITHER_WRAPPER)
        self._begun = False

    @property
    def finished(self) -> bool:
        return self._inflate.eof

    def feed(self, data: bytes, limit: int) -> bytes:
        """Decodes a piece. Raises httpx.DecodingError for garbage and for more than `limit` bytes."""
        try:
            return self._feed(data, limit)
        except zlib.error as error:
            if self._begun or self._coding != "deflate":
                raise httpx.DecodingError(f"the answer is not {self._coding}: {error}") from error
        self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)  # "deflate" without zlib's wrapper: wrong, and frequent
        try:
            return self._feed(data, limit)
        except zlib.error as error:
            raise httpx.DecodingError(f"the answer is not deflate: {error}") from error

    def _feed(self, data: bytes, limit: int) -> bytes:
        inflated = self._inflate.decompress(data, limit + 1)
        if len(inflated) > limit:
            raise httpx.DecodingError(f"the answer inflates to more than {limit} bytes")
        self._begun = True
        return inflated
