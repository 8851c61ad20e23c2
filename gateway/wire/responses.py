"""OpenAI's answer objects, built from scratch: what the bundled engine and embedder say, and the list of models.

Passed-on answers never come through here. Knows no engine.
"""

import abc
import base64
import sys
import time
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from gateway.wire.usage import Usage, usage_object

_STARTED = int(time.time())

_encode = msgspec.json.encode


class Choice(msgspec.Struct, frozen=True):
    text: str
    finish_reason: str


def chat_completion(id: str, created: int, model: str, choices: Iterable[Choice], usage: Usage) -> bytes:
    """A whole chat completion; the choices are numbered in their order."""
    whole = [
        {
            "index": index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": None,
            "finish_reason": choice.finish_reason,
        }
        for index, choice in enumerate(choices)
    ]
    return _answer(id, "chat.completion", created, model, whole, usage)


def text_completion(id: str, created: int, model: str, choices: Iterable[Choice], usage: Usage) -> bytes:
    """A whole text completion; the choices are numbered in their order."""
    whole = [
        {"text": choice.text, "index": index, "logprobs": None, "finish_reason": choice.finish_reason}
        for index, choice in enumerate(choices)
    ]
    return _answer(id, "text_completion", created, model, whole, usage)


def _answer(id: str, kind: str, created: int, model: str, choices: list[dict[str, Any]], usage: Usage) -> bytes:
    answer = {"id": id, "object": kind, "created": created, "model": model, "choices": choices}
    return _encode(answer | {"usage": usage_object(usage)})


class Chunks(abc.ABC):
    """Writes the chunks of one stream. With `null_usage` each says `"usage": null`, as OpenAI's do if it was asked."""

    _object: str
    _before_text: str  # between the choice's index and its text
    _after_text: bytes

    def __init__(self, id: str, created: int, model: str, *, null_usage: bool) -> None:
        head = {"id": id, "object": self._object, "created": created, "model": model}
        self._head = _encode(head)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}' if null_usage else b"]}"

    @abc.abstractmethod
    def opening(self, index: int) -> list[bytes]:
        """What comes before a choice's text."""

    def text(self, index: int, text: str) -> bytes:
        return self._chunk(self._before_text % index, _encode(text), self._after_text)

    @abc.abstractmethod
    def finish(self, index: int, reason: str) -> bytes: ...

    def usage(self, usage: Usage) -> bytes:
        return self._head + b'],"usage":' + _encode(usage_object(usage)) + b"}"

    def _chunk(self, before: str, value: bytes, after: bytes) -> bytes:
        return b"".join((self._head, before.encode(), value, after, self._tail))


class ChatChunks(Chunks):
    _object = "chat.completion.chunk"
    _before_text = '{"index":%d,"delta":{"content":'
    _after_text = b'},"logprobs":null,"finish_reason":null}'

    def opening(self, index: int) -> list[bytes]:
        before = f'{{"index":{index},"delta":{{"role":"assistant","content":'
        return [self._chunk(before, b'"","refusal":null', self._after_text)]

    def finish(self, index: int, reason: str) -> bytes:
        return self._chunk(f'{{"index":{index},"delta":{{}},"logprobs":null,"finish_reason":', _encode(reason), b"}")


class TextChunks(Chunks):
    _object = "text_completion"
    _before_text = '{"index":%d,"text":'
    _after_text = b',"logprobs":null,"finish_reason":null}'

    def opening(self, index: int) -> list[bytes]:
        return []

    def finish(self, index: int, reason: str) -> bytes:
        return self._chunk(f'{{"index":{index},"text":"","logprobs":null,"finish_reason":', _encode(reason), b"}")


def embeddings_list(
    model: str, rows: Sequence[bytes], prompt_tokens: int, encoding_format: Literal["float", "base64"] = "float"
) -> bytes:
    """Embeddings in their order. `rows`: float32, little-endian, as they stand in base64."""
    make = _as_base64 if encoding_format == "base64" else _as_floats
    data = [{"object": "embedding", "index": index, "embedding": make(row)} for index, row in enumerate(rows)]
    usage = {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens}
    return _encode({"object": "list", "data": data, "model": model, "usage": usage})


def _as_base64(row: bytes) -> str:
    return base64.b64encode(row).decode("ascii")


def _as_floats(row: bytes) -> list[float]:
    values = array("f", row)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def models_list(models: Iterable[tuple[str, str]], created: int = _STARTED) -> bytes:
    """GET /v1/models. `models`: a name and who serves it, each."""
    data = [_model(name, owned_by, created) for name, owned_by in models]
    return _encode({"object": "list", "data": data})


def model_object(name: str, owned_by: str, created: int = _STARTED) -> bytes:
    """GET /v1/models/{name}."""
    return _encode(_model(name, owned_by, created))


def _model(name: str, owned_by: str, created: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": owned_by}
