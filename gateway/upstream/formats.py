"""In whose format an answer comes, and how it is read: what relay, verdict and books want to know of its payloads.

Answers are in OpenAI's, unless client and provider share another API: then they pass in that one, untouched.
"""

import re
from collections.abc import Iterable
from typing import Any, Literal, Protocol

import msgspec

from gateway.upstream.first_token import is_prelude
from gateway.wire.assemble import assemble
from gateway.wire.completeness import text_length
from gateway.wire.dialect import Voice
from gateway.wire.inference import Inference
from gateway.wire.sse import DONE
from gateway.wire.stream import StreamReader
from gateway.wire.usage import Usage, read_usage

# Within a JSON string the quotes are escaped, so this matches a key of the chunk and nothing that a model wrote.
_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"')


Holds = Literal["answer", "error", "nothing"]


class Content(msgspec.Struct, frozen=True, gc=False):
    """What a whole answer says of itself."""

    held: Holds
    usage: Usage | None  # None where it reports none that can be read


class Reader(Protocol):
    """Sees all payloads of one stream, in order; see `gateway.wire.stream.StreamReader`."""

    usage: Usage | None
    done: bool
    error: Any
    num_deltas: int

    @property
    def finished(self) -> bool: ...

    @property
    def payloads(self) -> list[bytes]: ...

    def stop_collecting(self) -> None: ...

    def feed(self, payloads: list[bytes]) -> list[bytes]: ...


class Format(Protocol):
    """Payloads are those of a stream, bodies are whole answers."""

    def voice(self, request_id: str) -> Voice | None:
        """Tells such an answer to a client that shares the format; None: the client's own dialect does."""

    def reader(self, inference: Inference, *, collect: bool) -> Reader: ...

    def is_prelude(self, payload: bytes) -> bool:
        """Whether nothing is said yet: after it, another upstream can still answer."""

    def find_end(self, payloads: list[bytes]) -> int | None:
        """Where the payload lies that ends a stream."""

    def is_finish(self, payload: bytes) -> bool:
        """Whether a stream that breaks off behind it, without its end, was whole all the same."""

    def is_error(self, payload: bytes) -> bool:
        """Raises msgspec.DecodeError, UnicodeDecodeError, RecursionError."""

    def read(self, body: bytes) -> Content:
        """Raises as `is_error`."""

    def text_length(self, body: bytes) -> int:
        """Bytes of text."""

    def stored(self, body: bytes) -> bytes | None:
        """The body as the cache keeps it, in OpenAI's format; None for what it can't keep."""

    def assemble(self, payloads: Iterable[bytes], num_choices: int) -> bytes | None:
        """A stream's payloads as the cache keeps them."""


class _Body(msgspec.Struct):
    error: Any = None
    choices: list[msgspec.Raw] | None = None
    data: list[msgspec.Raw] | None = None
    usage: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Body).decode


class OpenAIFormat:
    """Chats, text completions and embeddings."""

    is_prelude = staticmethod(is_prelude)
    text_length = staticmethod(text_length)

    def voice(self, request_id: str) -> Voice | None:
        return None

    def reader(self, inference: Inference, *, collect: bool) -> Reader:
        return StreamReader(
            client_wants_usage=inference.include_usage, num_choices=inference.num_choices, collect=collect
        )

    def find_end(self, payloads: list[bytes]) -> int | None:
        return payloads.index(DONE) if DONE in payloads else None

    def is_finish(self, payload: bytes) -> bool:
        return _FINISHED.search(payload) is not None

    def is_error(self, payload: bytes) -> bool:
        return _decode(payload).error is not None

    def read(self, body: bytes) -> Content:
        said = _decode(body)
        usage = read_usage(said.usage)
        if said.error is not None:
            return Content("error", usage)
        return Content("answer" if said.choices or said.data else "nothing", usage)

    def stored(self, body: bytes) -> bytes | None:
        return body

    def assemble(self, payloads: Iterable[bytes], num_choices: int) -> bytes | None:
        return assemble(payloads, num_choices=num_choices)


OPENAI = OpenAIFormat()
