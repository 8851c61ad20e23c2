"""How a client speaks: each API in front of the same pipeline is a dialect over OpenAI's chat format.

A `Dialect` reads a request into an `Inference`, which everything behind it understands, and its `Voice` tells the one
answer: payloads and bodies in OpenAI's format in, the client's own format out. OpenAI's own dialects add nothing.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.errors import ApiError
from gateway.wire.inference import Inference
from gateway.wire.sse import DONE, frame, frames


class Voice(Protocol):
    """One answer as its client wants to read it. Made once a request; a stream's calls come in order.

    `error` must work at any time; `broken` ends a stream whose headers have left already, and nothing follows it.
    """

    def whole(self, body: bytes) -> bytes:
        """A whole successful answer. Raises UpstreamError for what is none."""

    def events(self, payloads: Iterable[bytes]) -> bytes:
        """Framed events for these payloads, none of them [DONE]; may be empty."""

    def end(self) -> bytes:
        """The last bytes of a stream that is whole."""

    def error(self, error: ApiError) -> bytes:
        """The body of a refusal of ours."""

    def refusal(self, body: bytes, status: int) -> bytes:
        """An upstream's own refusal, which comes in OpenAI's error shape."""

    def broken(self, error: ApiError) -> bytes:
        """The event that tells of a failure in mid-stream."""


class Dialect(Protocol):
    """Raises InvalidRequestError from `parse` for what makes no sense in this dialect."""

    def parse(self, raw: bytes) -> Inference: ...

    def voice(self, inference: Inference, request_id: str) -> Voice: ...


class PlainVoice:
    """OpenAI's format, byte for byte as it came."""

    __slots__ = ()

    def whole(self, body: bytes) -> bytes:
        return body

    def events(self, payloads: Iterable[bytes]) -> bytes:
        return frames(payloads)

    def end(self) -> bytes:
        return frame(DONE)

    def error(self, error: ApiError) -> bytes:
        return error.encode()

    def refusal(self, body: bytes, status: int) -> bytes:
        return body

    def broken(self, error: ApiError) -> bytes:
        return frame(error.encode())


PLAIN = PlainVoice()


class PlainDialect:
    """An endpoint of OpenAI's whose requests and answers are what the backends speak."""

    __slots__ = ("parse",)

    def __init__(self, parse: Callable[[bytes], Inference]) -> None:
        self.parse = parse

    def voice(self, inference: Inference, request_id: str) -> Voice:
        return PLAIN
