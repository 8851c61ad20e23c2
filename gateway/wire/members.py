"""Where the members of a JSON object lie in its bytes, so that one value can be replaced and every other byte kept.

Knows nothing of what the members mean.
"""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

_KEY = rb'[ \t\n\r]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t\n\r]*:[ \t\n\r]*'
_FIRST = re.compile(rb"[ \t\n\r]*\{" + _KEY)
_NEXT = re.compile(rb"[ \t\n\r]*," + _KEY)
_OPEN = re.compile(rb"[ \t\n\r]*\{")
_CLOSE = re.compile(rb"[ \t\n\r]*\}[ \t\n\r]*\Z")

decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""Bytes of an object -> its members' undecoded values, in order of first appearance; the last of equal keys wins."""


class RepeatedKeyError(ValueError):
    """The object names one of its keys twice, so two readers may disagree about what it says."""


class Member(NamedTuple):
    """Offsets of one member: from its key's first quote to the end of its value."""

    key_start: int
    value_start: int
    value_end: int


def locate(raw: bytes, fields: Mapping[str, msgspec.Raw]) -> dict[str, Member]:
    """Finds every member of the object `raw`, of which `fields` is `decode_members`. Raises RepeatedKeyError.

    Each step checks that the value found is the value decoded, byte for byte: so the walk is a parse of the object,
    and it can only end at the closing brace when no key was repeated.
    """
    members: dict[str, Member] = {}
    position = 0
    pattern = _FIRST
    for name, value in fields.items():
        key = pattern.match(raw, position)
        text = bytes(value)
        if key is None or not _is_key(key[1], name) or not raw.startswith(text, start := key.end()):
            raise RepeatedKeyError
        position = start + len(text)
        members[name] = Member(key.start(1) - 1, start, position)
        pattern = _NEXT
    if (_CLOSE.match(raw, position) if fields else _OPEN.match(raw)) is None:
        raise RepeatedKeyError
    return members


def repeated_key(raw: bytes, fields: Mapping[str, msgspec.Raw]) -> str | None:
    """The repeated key, if there is one. Cheap where the object has no spaces, or Python's."""
    if _is_written_plainly(raw, fields):
        return None
    try:
        locate(raw, fields)
    except RepeatedKeyError:
        return _first_repeated(raw)
    return None


def _is_written_plainly(raw: bytes, fields: Mapping[str, msgspec.Raw]) -> bool:
    """Whether these members and nothing else make up `raw`, without spaces or with those that Python's json puts."""
    if b'": ' not in raw[:64]:
        return raw == msgspec.json.encode(fields)
    return raw == b"{%b}" % b", ".join([b'"%b": %b' % (name.encode(), value) for name, value in fields.items()])


def replace(raw: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    """`raw` with each (start, end) exchanged for new bytes; the spans don't overlap."""
    pieces: list[bytes] = []
    position = 0
    for start, end, new in sorted(changes):
        pieces += (raw[position:start], new)
        position = end
    pieces.append(raw[position:])
    return b"".join(pieces)


def insert_first(raw: bytes, name: bytes, value: bytes) -> tuple[int, int, bytes]:
    """The change that puts a member in front of all others. `name` needs no escapes."""
    opening = _OPEN.match(raw)
    assert opening is not None, "not an object"
    separator = b"" if _CLOSE.match(raw, opening.end()) else b","
    return opening.end(), opening.end(), b'"' + name + b'":' + value + separator


def remove(raw: bytes, name: str) -> bytes:
    """`raw` without one member and its comma, every other byte as it was; `raw` itself when it has no such member.

    Raises msgspec.DecodeError when `raw` is not an object.
    """
    fields = decode_members(raw)
    if name not in fields:
        return raw
    try:
        members = locate(raw, fields)
    except RepeatedKeyError:
        return msgspec.json.encode({key: value for key, value in fields.items() if key != name})
    names = list(fields)
    index = names.index(name)
    member = members[name]
    if index:
        return raw[: members[names[index - 1]].value_end] + raw[member.value_end :]
    end = members[names[1]].key_start if len(names) > 1 else member.value_end
    return raw[: member.key_start] + raw[end:]


def _is_key(written: bytes, name: str) -> bool:
    if written == name.encode():
        return True
    return b"\\" in written and bool(msgspec.json.decode(b'"' + written + b'"') == name)


def _first_repeated(raw: bytes) -> str:
    """The first key that comes a second time. Slow: for the error's message only."""
    keys: list[str] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        keys[:] = [key for key, _ in pairs]  # the outermost object is reported last

    try:
        json.loads(raw, object_pairs_hook=note, parse_int=str)
    except RecursionError:
        return "(a repeated key)"
    return next(key for index, key in enumerate(keys) if key in keys[:index])
