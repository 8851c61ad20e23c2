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
from gateway.wire.usage import Usage, usage_of

Holds = Literal["answer", "error", "nothing"]
# Within a JSON string the quotes are escaped, so this matches a key of the chunk and nothing that a model wrote.
_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"')


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

    def holds(self, payload: bytes, *, whole: bool = False) -> Holds:
        """`whole`: it is a body. Raises msgspec.DecodeError, UnicodeDecodeError, RecursionError."""

    def usage_of(self, body: bytes) -> Usage | None: ...

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


_decode = msgspec.json.Decoder(_Body).decode


class OpenAIFormat:
    """Chats, text completions and embeddings."""

    is_prelude = staticmethod(is_prelude)
    usage_of = staticmethod(usage_of)
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

    def holds(self, payload: bytes, *, whole: bool = False) -> Holds:
        body = _decode(payload)
        if body.error is not None:
            return "error"
        return "nothing" if whole and not body.choices and not body.data else "answer"

    def stored(self, body: bytes) -> bytes | None:
        return body

    def assemble(self, payloads: Iterable[bytes], num_choices: int) -> bytes | None:
        return assemble(payloads, num_choices=num_choices)


OPENAI = OpenAIFormat()
