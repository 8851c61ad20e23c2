"""Tells a stream's opening from its first token: a chunk that only says "assistant" is not an answer yet."""

from typing import Any

import msgspec


class _Choice(msgspec.Struct):
    delta: dict[str, Any] | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Any = None
    error: Any = None


# What most chunks hold. Within a JSON string the quotes are escaped, so no text looks like it.
_TEXT = b'"delta":{"content":"'
_NO_TEXT = b'"delta":{"content":""'

_decoder = msgspec.json.Decoder(_Chunk)


def is_prelude(payload: bytes) -> bool:
    """True for a chunk without token, tool call, usage, end or error: after it, another upstream can still answer.

    Azure begins with what its content filter says of the prompt, in a chunk without choices.
    """
    if len(payload) > 4096 or b'"choices"' not in payload or (_TEXT in payload and _NO_TEXT not in payload):
        return False
    try:
        chunk = _decoder.decode(payload)
    except msgspec.DecodeError:
        return False
    return chunk.error is None and chunk.usage is None and not any(map(_says_something, chunk.choices))


def _says_something(choice: _Choice) -> bool:
    said = choice.delta or {}
    said.pop("role", None)
    return bool(choice.finish_reason or choice.text) or any(said.values())
