"""Reads one call, a JSON object, while it is being written. Knows nothing of what stands around it."""

import json
import re
from typing import Any, Literal

_NAME_FIRST = re.compile(
    r'\{\s*"name"\s*:\s*"(?P<name>[^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)', re.DOTALL
)
_FIRST_KEY = re.compile(r'\{\s*(?:"(?P<key>[^"]*)(?P<end>")?)?')
_FIRST_KEYS = ("name", "arguments", "parameters", "type", "function", "id")


class JsonObject:
    """Finds where an object ends, from its first brace on."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def read(self, text: str) -> tuple[str, int | None]:
        """The next piece of the object, and the place behind its last brace; None when there is more to come.

        Small models write line ends into strings as they are: these come back escaped, as JSON wants them.
        """
        written = []
        for place, character in enumerate(text):
            written.append(character)
            if self._in_string:
                if character < " ":
                    written[-1] = json.dumps(character)[1:-1]
                if self._escaped:
                    self._escaped = False
                elif character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._in_string = False
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return "".join(written), place + 1
        return "".join(written), None


class CallReader:
    """`names`: of the functions that there are; an object that names no other is no call.

    `state` is "open" while it may become a call, "call" once it is one, "done" at its end, "none" if it is no call.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._whole = JsonObject()
        self._arguments: JsonObject | None = None
        self.state: Literal["open", "call", "done", "none"] = "open"
        self.raw = ""  # all that was read
        self.name = ""

    def read(self, text: str) -> tuple[str, str]:
        """The next piece of the object: what it has of the arguments, and what stands behind the object."""
        _, end = self._whole.read(text)
        piece, rest = (text, "") if end is None else (text[:end], text[end:])
        self.raw += piece
        fragment = self._fragment(piece)
        if end is not None:
            fragment += self._finish()
        elif self.state == "open" and not _may_be_a_call(self.raw):
            self.state = "none"
        return fragment, rest

    def _fragment(self, piece: str) -> str:
        """What `piece` has of the arguments, once the object has said whose they are."""
        if self.state == "open":
            begin = _NAME_FIRST.match(self.raw)
            if begin is None or begin["name"] not in self._names:
                return ""
            self.state, self.name, self._arguments = "call", begin["name"], JsonObject()
            piece = self.raw[begin.end() :]
        if self._arguments is None:
            return ""
        fragment, end = self._arguments.read(piece)
        if end is not None:
            self._arguments = None
        return fragment

    def _finish(self) -> str:
        """The arguments of a call that was written in another order, now that all of it is there."""
        if self.state == "call":
            self.state = "done"
            return ""
        name, arguments = _call(self.raw)
        if not isinstance(name, str) or name not in self._names or not isinstance(arguments, dict):
            self.state = "none"
            return ""
        self.state, self.name = "done", name
        return json.dumps(arguments, ensure_ascii=False)


def _may_be_a_call(raw: str) -> bool:
    first = _FIRST_KEY.match(raw)
    assert first is not None, "an object begins with a brace"
    key = first["key"]
    if key is None:
        return first.end() == len(raw)
    return key in _FIRST_KEYS if first["end"] else any(known.startswith(key) for known in _FIRST_KEYS)


def _call(raw: str) -> tuple[Any, Any]:
    """Name and arguments, wherever in the object they are."""
    try:
        call = json.loads(raw, strict=False)  # see JsonObject.read
    except (ValueError, RecursionError):
        return None, None
    if isinstance(inner := call.get("function"), dict):
        call = inner
    arguments = call.get("arguments", call.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, strict=False)
        except (ValueError, RecursionError):
            return None, None
    return call.get("name"), arguments
