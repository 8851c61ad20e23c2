"""Identifiers that sort by time (UUIDv7, RFC 9562 section 5.7)."""

import os
import time

ID = "[0-9a-f]{32}"  # a regular expression

_FETCHED = 64
_RANDOM = int("0fff3fffffffffffffff" * _FETCHED, 16)  # what of an id's last ten bytes is random
_FIXED = int("70008000000000000000" * _FETCHED, 16)  # version 7, variant 0b10
_tails: list[str] = []  # of ids to come
os.register_at_fork(after_in_child=_tails.clear)


def id_at(seconds: float | None = None) -> str:
    """Above all ids made before that time (since the epoch; None: now), below all made after it."""
    milliseconds = int((time.time() if seconds is None else seconds) * 1000) + (seconds is None)
    return f"{max(0, milliseconds):012x}{0:020x}"


def new_id() -> str:
    """32 hex digits: 48 bits of milliseconds, then 74 random bits around version and variant."""
    try:
        tail = _tails.pop()
    except IndexError:
        tail = _fetch_tails()
    return f"{time.time_ns() // 1_000_000:012x}{tail}"


def _fetch_tails() -> str:
    """The kernel's randomness, for many ids at once: asking it costs more than all the rest of an id."""
    random = int.from_bytes(os.urandom(10 * _FETCHED), "big")
    first, *others = (random & _RANDOM | _FIXED).to_bytes(10 * _FETCHED, "big").hex(" ", 10).split(" ")
    _tails.extend(others)
    return first
