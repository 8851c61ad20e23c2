"""Answers that pass as they are: JSON of other shapes than chat's, and bytes that are no JSON at all (audio, texts)."""

from collections.abc import AsyncIterator, Iterable

import msgspec

from gateway.upstream.answer import HttpAnswer
from gateway.upstream.formats import Content, OpenAIFormat, Reader
from gateway.wire.inference import Inference
from gateway.wire.usage import Usage

PATHS = {
    "moderations": "moderations",
    "audio.transcriptions": "audio/transcriptions",
    "audio.translations": "audio/translations",
    "audio.speech": "audio/speech",
    "images.generations": "images/generations",
}
FORMS = frozenset(("audio.transcriptions", "audio.translations"))  # whose requests are no JSON
BYTES = frozenset(("audio.transcriptions", "audio.translations", "audio.speech"))  # whose answers need not be
TAIL_BYTES = 16 * 1024  # of a stream, in which its usage is looked for


class _WireUsage(msgspec.Struct):
    """As audio and images report it; `seconds` of audio instead where they are what is paid for."""

    input_tokens: int = 0
    output_tokens: int = 0

    def counted(self) -> Usage:
        return Usage(prompt_tokens=self.input_tokens, completion_tokens=self.output_tokens)


class _Body(msgspec.Struct):
    error: msgspec.Raw = msgspec.Raw(b"null")
    usage: _WireUsage | None = None


_decode = msgspec.json.Decoder(_Body).decode


class JsonFormat(OpenAIFormat):
    """Implements `gateway.upstream.formats.Format`. Nothing of it is kept by the cache."""

    def is_error(self, payload: bytes) -> bool:
        return self.read(payload).held == "error"

    def read(self, body: bytes) -> Content:
        said = _decode(body)
        usage = None if said.usage is None else said.usage.counted()
        return Content("answer" if bytes(said.error) == b"null" else "error", usage)

    def text_length(self, body: bytes) -> int:
        return 0

    def stored(self, body: bytes) -> bytes | None:
        return None


class BytesFormat(JsonFormat):
    """A stream's payloads are pieces of the body, wherever they were cut."""

    def reader(self, inference: Inference, *, collect: bool) -> Reader:
        return BytesReader()

    def is_prelude(self, payload: bytes) -> bool:
        return False

    def is_error(self, payload: bytes) -> bool:
        return False

    def assemble(self, payloads: Iterable[bytes], num_choices: int) -> bytes | None:
        return None


class BytesReader:
    """Implements `gateway.upstream.formats.Reader`. Of a text in events it finds what it used."""

    def __init__(self) -> None:
        self.done = False
        self.error = None
        self.num_deltas = 0
        self.finished = True
        self.payloads: list[bytes] = []
        self.usage: Usage | None = None
        self._tail = b""

    def stop_collecting(self) -> None:
        """Nothing is collected."""

    def feed(self, payloads: list[bytes]) -> list[bytes]:
        self._tail = b"".join((self._tail, *payloads))[-TAIL_BYTES:]
        if b'"usage"' in self._tail:
            lines = [line for line in self._tail.split(b"\n") if line.startswith(b"data:") and b'"usage"' in line]
            self.usage = (_usage_in(lines[-1][5:]) if lines else None) or self.usage
        return payloads


def _usage_in(event: bytes) -> Usage | None:
    try:
        return JSON.read(event).usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


JSON = JsonFormat()
RAW = BytesFormat()


async def pieces(answer: HttpAnswer) -> AsyncIterator[list[bytes]]:
    """A body as it comes, one piece at a time. Raises UpstreamFailure for one that breaks off."""
    try:
        while piece := await answer.read():
            yield [piece]
    finally:
        await answer.aclose()
