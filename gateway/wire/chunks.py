"""The chunks of OpenAI's streams, built from scratch: what the bundled engine says, piece by piece. Knows no engine."""

import abc
from typing import Any

import msgspec

from gateway.wire.usage import Usage, usage_object

_encode = msgspec.json.encode


class Chunks(abc.ABC):
    """Writes the chunks of one stream. With `null_usage` each says `"usage": null`, as OpenAI's do if it was asked.

    `logprobs`: in the endpoint's shape (`gateway.wire.logprobs`), of the tokens that a chunk stands for.
    """

    _object: str

    def __init__(self, id: str, created: int, model: str, *, null_usage: bool) -> None:
        head = {"id": id, "object": self._object, "created": created, "model": model}
        self._head = _encode(head)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}' if null_usage else b"]}"

    @abc.abstractmethod
    def opening(self, index: int) -> list[bytes]:
        """What comes before a choice's text."""

    @abc.abstractmethod
    def text(self, index: int, text: str, logprobs: dict[str, Any] | None = None) -> bytes: ...

    @abc.abstractmethod
    def finish(self, index: int, reason: str) -> bytes: ...

    def usage(self, usage: Usage) -> bytes:
        return self._head + b'],"usage":' + _encode(usage_object(usage)) + b"}"

    def _chunk(self, before: str, value: bytes, after: bytes) -> bytes:
        return b"".join((self._head, before.encode(), value, after, self._tail))


class ChatChunks(Chunks):
    _object = "chat.completion.chunk"

    def opening(self, index: int) -> list[bytes]:
        return [self.delta(index, {"role": "assistant", "content": "", "refusal": None})]

    def text(self, index: int, text: str, logprobs: dict[str, Any] | None = None) -> bytes:
        return self._chunk(f'{{"index":{index},"delta":{{"content":', _encode(text), b"}" + _after(logprobs))

    def call(self, index: int, place: int, id: str, name: str, logprobs: dict[str, Any] | None = None) -> bytes:
        """A call begins: the choice's `place`-th, from 0."""
        call = {"index": place, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
        return self.delta(index, {"tool_calls": [call]}, logprobs)

    def arguments(self, index: int, place: int, text: str, logprobs: dict[str, Any] | None = None) -> bytes:
        call = {"index": place, "function": {"arguments": text}}
        return self.delta(index, {"tool_calls": [call]}, logprobs)

    def delta(self, index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None = None) -> bytes:
        return self._chunk(f'{{"index":{index},"delta":', _encode(delta), _after(logprobs))

    def finish(self, index: int, reason: str) -> bytes:
        return self._chunk(f'{{"index":{index},"delta":{{}},"logprobs":null,"finish_reason":', _encode(reason), b"}")


class TextChunks(Chunks):
    _object = "text_completion"

    def opening(self, index: int) -> list[bytes]:
        return []

    def text(self, index: int, text: str, logprobs: dict[str, Any] | None = None) -> bytes:
        return self._chunk(f'{{"index":{index},"text":', _encode(text), _after(logprobs))

    def finish(self, index: int, reason: str) -> bytes:
        return self._chunk(f'{{"index":{index},"text":"","logprobs":null,"finish_reason":', _encode(reason), b"}")


def _after(logprobs: dict[str, Any] | None) -> bytes:
    if logprobs is None:
        return b',"logprobs":null,"finish_reason":null}'
    return b',"logprobs":' + _encode(logprobs) + b',"finish_reason":null}'
