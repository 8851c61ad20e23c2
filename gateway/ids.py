"""Identifiers that sort by time (UUIDv7, RFC 9562 section 5.7)."""

import os
import time

ID = "[0-9a-f]{32}"  # a regular expression

_FETCHED = 64
_unused: list[bytes] = []  # random bytes for ids to come
os.register_at_fork(after_in_child=_unused.clear)


def id_at(seconds: float | None = None) -> str:
    """Above all ids made before that time (since the epoch; None: now), below all made after it."""
    milliseconds = int((time.time() if seconds is None else seconds) * 1000) + (seconds is None)
    return f"{max(0, milliseconds):012x}{0:020x}"


def new_id() -> str:
    """32 hex digits: 48 bits of milliseconds, then 74 random bits around version and variant."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(_ten_random_bytes(), "big")
    high = (milliseconds << 16) | 0x7000 | (random >> 68)
    low = (0b10 << 62) | (random & ((1 << 62) - 1))
    return f"{high:016x}{low:016x}"


def _ten_random_bytes() -> bytes:
    """The kernel's, fetched for many ids at once: asking it costs more than all the rest of an id."""
    try:
        return _unused.pop()
    except IndexError:
        fresh = os.urandom(10 * _FETCHED)
        _unused.extend(fresh[start : start + 10] for start in range(10, len(fresh), 10))
        return fresh[:10]
