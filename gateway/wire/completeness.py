"""Is a whole answer whole? Truncated, filtered, failed and empty ones are not, and tool calls are no answer yet."""

from typing import Any

import msgspec


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[msgspec.Raw] | None = None
    function_call: msgspec.Raw | None = None


class _Choice(msgspec.Struct):
    finish_reason: str | None = None
    message: _Message | None = None
    text: str | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice] = []
    error: msgspec.Raw | None = None


_decode = msgspec.json.Decoder(_Body).decode


class _Error(msgspec.Struct):
    error: dict[str, Any]


_LONGEST_REASON = 2000

_decode_error = msgspec.json.Decoder(_Error).decode


def is_error(body: bytes) -> bool:
    """Whether a client of OpenAI's would know it for an error: an object with an object `error`."""
    try:
        _decode_error(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def reason_in(body: bytes) -> str:
    """What an error of another shape says: in `error`, `message` or `detail`, as other servers write it, or as
    plain text; "" where there is nothing to quote, such as a page in HTML."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        plain = " ".join(body.decode("utf-8", "replace").split())
        return plain[:_LONGEST_REASON] if plain.isprintable() and not plain.startswith(("<", "{", "[")) else ""
    if isinstance(found, dict):
        said = (found.get(name) for name in ("error", "message", "detail"))
        found = next((each for each in said if each and isinstance(each, str | list | dict)), "")
    if isinstance(found, list | dict) and found:
        found = msgspec.json.encode(found).decode()  # FastAPI's list of what is wrong where
    return found.strip()[:_LONGEST_REASON] if isinstance(found, str) else ""


def text_length(body: bytes) -> int:
    """Bytes of text in a whole answer, all choices together; 0 for what is none."""
    try:
        choices = _decode(body).choices
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    texts = (choice.text if choice.message is None else choice.message.content for choice in choices)
    return sum(len(text.encode("utf-8", "replace")) for text in texts if text)


def is_complete(body: bytes) -> bool:
    """Whether every choice of a chat or text completion says something, and came to its end."""
    try:
        answer = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return answer.error is None and bool(answer.choices) and all(map(_says_something, answer.choices))


def _says_something(choice: _Choice) -> bool:
    if choice.finish_reason != "stop":
        return False
    if choice.message is None:
        return bool(choice.text)
    return bool(choice.message.content) and not choice.message.tool_calls and choice.message.function_call is None
