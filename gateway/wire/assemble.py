"""A stream's payloads as the whole answer that the cache stores. The reverse is `replay`.

What is not complete is not assembled: a cut, failed or unreadable stream gives None.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gateway.wire.sse import DONE

_SET_ONCE = ("role", "id", "type", "index")  # strings and numbers that are not pieces of anything
_PER_CHUNK = ("choices", "usage", "object", "obfuscation")
_WINDOW = 64  # payloads that are looked at together


_PLAIN = {"index", "delta", "finish_reason", "logprobs"}
_CONTENT = b'"delta":{"content":"'
_STRING = re.compile(rb'((?:[^"\\]|\\.)*)"', re.DOTALL)  # behind its first quote
_STRINGS = re.compile(rb'[^"\\]*(?:\\[^\n][^"\\]*)*')  # several without their quotes, a line each
_PADDING = re.compile(rb',"obfuscation":"[^"\\]*"')  # of random length: OpenAI's, against listeners on the wire


class _IncompleteError(Exception):
    pass


# A stream that is no chat or text completion trips over one of these somewhere on the way.
_UNREADABLE = (
    _IncompleteError,
    msgspec.MsgspecError,
    AttributeError,
    IndexError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)


def assemble(payloads: Iterable[bytes], *, num_choices: int = 1) -> bytes | None:
    """The chat or text completion that the payloads add up to; None when one of `num_choices` has no finish_reason."""
    try:
        return msgspec.json.encode(_assemble(list(payloads), num_choices))
    except _UNREADABLE:
        return None


def _assemble(payloads: Sequence[bytes], num_choices: int) -> dict[str, Any]:
    head: dict[str, Any] = {}
    known = set(_PER_CHUNK)
    choices: dict[int, dict[str, Any]] = {}
    usage: dict[str, Any] | None = None
    position = 0
    while position < len(payloads) and payloads[position] != DONE:
        chunk: dict[str, Any] = msgspec.json.decode(payloads[position])
        if chunk.get("error") is not None:
            raise _IncompleteError
        if new := chunk.keys() - known:
            head.update({name: value for name, value in chunk.items() if name in new})
            known |= new
        if chunk.get("usage") is not None:
            usage = chunk["usage"]  # totals that grow, so the last is the largest
        for delta in chunk.get("choices") or ():
            _add(choices.setdefault(delta.get("index", 0), {}), delta)
        run = _Run.begun_by(payloads[position], chunk)
        position += 1
        if run is not None:
            position += run.take(payloads, position)
            _merge(choices[run.index]["message"], {"content": run.text})
    if len(choices) < num_choices or not all(choice.get("finish_reason") for choice in choices.values()):
        raise _IncompleteError
    is_chat = "message" in next(iter(choices.values()))
    finish = _whole_chat_choice if is_chat else _whole_text_choice
    head["object"] = "chat.completion" if is_chat else "text_completion"
    head["choices"] = [finish(index, choices[index]) for index in sorted(choices)]
    if usage is not None:
        head["usage"] = usage
    return head


class _Run:
    """Chunks that differ from one before them in nothing but a piece of text, as most of a stream's do.

    They need no parsing: all else that they say is known, and their pieces become one string in the end.
    """

    __slots__ = ("_after", "_before", "_pieces", "index")

    def __init__(self, index: int, before: bytes, after: bytes) -> None:
        self.index = index  # of the choice
        self._before = before  # what each chunk begins with, up to its text
        self._after = after  # ... and what follows the text, its last quote first
        self._pieces: list[bytes] = []

    @classmethod
    def begun_by(cls, payload: bytes, chunk: dict[str, Any]) -> "_Run | None":
        """`payload` was the `chunk`; None where it is not a piece of text and nothing else."""
        if payload.count(_CONTENT) != 1:
            return None
        start = payload.find(_CONTENT) + len(_CONTENT)
        if (text := _STRING.match(payload, start)) is None:
            return None
        deltas: list[dict[str, Any]] = chunk.get("choices") or []
        if len(deltas) != 1 or not _says_text_alone(delta := deltas[0]):
            return None
        return cls(delta.get("index", 0), payload[:start], _PADDING.sub(b"", payload[text.end(1) :]))

    def take(self, payloads: Sequence[bytes], start: int) -> int:
        """Takes the payloads from there on that go on with it. Returns how many they are."""
        end = start
        while window := payloads[end : end + _WINDOW]:
            taken = self._take_together(window) or self._take_one_by_one(window)
            end += taken
            if taken < len(window):
                break
        return end - start

    @property
    def text(self) -> str:
        """Raises msgspec.DecodeError."""
        text: str = msgspec.json.decode(b'"%b"' % b"".join(self._pieces))
        return text

    def _take_together(self, payloads: Sequence[bytes]) -> int:
        """The first ones, as many as differ in their texts alone: then these are what stands between known bytes."""
        told = b"\n".join(payloads)
        if not told.startswith(self._before):
            return 0
        pieces = told[len(self._before) :].split(self._after + b"\n" + self._before)
        last, whole, _ = (pieces.pop() + b"\n").partition(self._after + b"\n")
        if whole:
            pieces.append(last)
        texts = b"\n".join(pieces)
        if texts.count(b"\n") != len(pieces) - 1 or _STRINGS.fullmatch(texts) is None:
            return 0
        self._pieces += pieces
        return len(pieces)

    def _take_one_by_one(self, payloads: Sequence[bytes]) -> int:
        before, pieces = self._before, len(self._pieces)
        for payload in payloads:
            text = _STRING.match(payload, len(before)) if payload.startswith(before) else None
            if text is None or _PADDING.sub(b"", payload[text.end(1) :]) != self._after:
                break
            self._pieces.append(text[1])
        return len(self._pieces) - pieces


def _says_text_alone(delta: dict[str, Any]) -> bool:
    message = delta.get("delta") or {}
    return message.keys() == {"content"} and delta.keys() <= _PLAIN and delta.get("logprobs") is None


def _add(choice: dict[str, Any], delta: dict[str, Any]) -> None:
    """One chunk's `choices[i]` onto what came before."""
    for name, value in delta.items():
        if name == "delta":
            _merge(choice.setdefault("message", {}), {} if value is None else value)
        elif name == "logprobs":
            if value is not None:
                _merge(choice.setdefault("logprobs", {}), value)
        elif name == "text":
            choice["text"] = choice.get("text", "") + (value or "")
        elif value is not None:
            choice[name] = value
        else:
            choice.setdefault(name, None)


def _merge(whole: dict[str, Any], part: dict[str, Any]) -> None:
    """Texts are joined, lists of indexed objects merged by index, other lists extended, the rest replaced."""
    for name, value in part.items():
        known = whole.get(name)
        if known is None or value is None or name in _SET_ONCE:
            if value is not None or name not in whole:
                whole[name] = _indexed([], value) if isinstance(value, list) else value
        elif isinstance(value, str) and isinstance(known, str):
            whole[name] = known + value
        elif isinstance(value, dict) and isinstance(known, dict):
            _merge(known, value)
        elif isinstance(value, list) and isinstance(known, list):
            whole[name] = _indexed(known, value)
        else:
            whole[name] = value


def _indexed(whole: list[Any], part: list[Any]) -> list[Any]:
    """Tool calls come in pieces that name their place; parallel ones may be mixed."""
    for item in part:
        place = None
        if isinstance(item, dict) and isinstance(item.get("index"), int):
            place = next((known for known in whole if known.get("index") == item["index"]), None)
        if place is None:
            whole.append(item)
        else:
            _merge(place, item)
    return whole


def _whole_chat_choice(index: int, choice: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None} | choice["message"]
    calls = message.get("tool_calls")
    if calls is not None:
        calls.sort(key=lambda call: call.get("index", 0))
        message["tool_calls"] = [{name: call[name] for name in call if name != "index"} for call in calls]
    return choice | {"index": index, "message": message, "logprobs": choice.get("logprobs")}


def _whole_text_choice(index: int, choice: dict[str, Any]) -> dict[str, Any]:
    return choice | {"index": index, "text": choice["text"], "logprobs": choice.get("logprobs")}
