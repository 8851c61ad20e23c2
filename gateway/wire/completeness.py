"""Is a whole answer whole? Truncated, filtered, failed and empty ones are not, and tool calls are no answer yet."""

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
