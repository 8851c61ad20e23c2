"""JSON in a model's answer: where an object ends, and values read, written, and as part of a grammar."""

import json
import sys
from typing import Any, NoReturn

from engine.json_style import COMPACT
from engine.tools.schemas import types_of


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


def read_json(text: str) -> Any:
    """As models write it: line ends in strings are let pass, and numbers beyond all floats. Raises ValueError."""
    try:
        return json.loads(text, strict=False, parse_float=_finite, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def is_json(text: str) -> bool:
    try:
        read_json(text)
    except ValueError:
        return False
    return True


def as_json(value: Any) -> str:
    """Raises ValueError or TypeError for what JSON has no notation of. Halves of a character stay escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def json_rule(schema: dict[str, Any]) -> str:
    """JSON that fits, as a part of a Lark rule."""
    has_parts = types_of(schema) & {"object", "array"}
    return f"%json {json.dumps(schema | {'x-guidance': COMPACT} if has_parts else schema, ensure_ascii=False)}"


def finite(number: float) -> float:
    """The largest number that there is in place of one beyond it."""
    return max(-sys.float_info.max, min(number, sys.float_info.max))


def _finite(text: str) -> float:
    return finite(float(text))


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
