"""OpenAI's answer objects, built from scratch: what the bundled engine and embedder say, and the list of models.

Passed-on answers never come through here. Knows no engine.
"""

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


class Call(msgspec.Struct, frozen=True):
    """A call of a function. `arguments`: JSON, as the model wrote it."""

    id: str
    name: str
    arguments: str


class Choice(msgspec.Struct, frozen=True):
    """`logprobs`: in the endpoint's shape (`gateway.wire.logprobs`)."""

    text: str
    finish_reason: str
    calls: tuple[Call, ...] = ()
    logprobs: dict[str, Any] | None = None


def chat_completion(id: str, created: int, model: str, choices: Iterable[Choice], usage: Usage) -> bytes:
    """A whole chat completion; the choices are numbered in their order."""
    whole = [
        {
            "index": index,
            "message": _message(choice),
            "logprobs": choice.logprobs,
            "finish_reason": choice.finish_reason,
        }
        for index, choice in enumerate(choices)
    ]
    return _answer(id, "chat.completion", created, model, whole, usage)


def _message(choice: Choice) -> dict[str, Any]:
    if not choice.calls:
        return {"role": "assistant", "content": choice.text, "refusal": None}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in choice.calls
    ]
    return {"role": "assistant", "content": choice.text or None, "refusal": None, "tool_calls": calls}


def text_completion(id: str, created: int, model: str, choices: Iterable[Choice], usage: Usage) -> bytes:
    """A whole text completion; the choices are numbered in their order."""
    whole = [
        {"text": choice.text, "index": index, "logprobs": choice.logprobs, "finish_reason": choice.finish_reason}
        for index, choice in enumerate(choices)
    ]
    return _answer(id, "text_completion", created, model, whole, usage)


def _answer(id: str, kind: str, created: int, model: str, choices: list[dict[str, Any]], usage: Usage) -> bytes:
    answer = {"id": id, "object": kind, "created": created, "model": model, "choices": choices}
    return _encode(answer | {"usage": usage_object(usage)})


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
