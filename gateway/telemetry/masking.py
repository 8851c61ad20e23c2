"""What no log may hold: API keys by their look, and this gateway's own secrets by their value; nor forged lines."""

import logging
import re
import time
from collections.abc import Iterable

_SHAPES = (
    r"(?P<key>\bsk-[A-Za-z0-9_-]{4})[A-Za-z0-9_-]{4,}"
    r"|(?P<bearer>\b[Bb]earer\s+)(?!sk-)[^\s'\",;]+"
    r"|(?P<login>://[^\s/:@]*:)[^\s@/]+(?=@)"
)
_LOOKS_LIKE_A_KEY = re.compile(r"sk-[A-Za-z0-9_-]{16}")
_MIN_LENGTH = 8  # of a secret: a shorter one would take half of the text with it
_INDENT = "\n    "
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"} | {
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}

_known: set[str] = set()
_secrets = re.compile(_SHAPES)


def never_show(secrets: Iterable[str]) -> None:
    """From now on they are masked wherever they stand. None is taken back: an old key may still be somebody's."""
    global _secrets
    _known.update(secret for secret in secrets if len(secret) >= _MIN_LENGTH)
    longest_first = sorted(_known, key=len, reverse=True)
    _secrets = re.compile("|".join([*(f"({re.escape(secret)})" for secret in longest_first), _SHAPES]))


def mask(text: str) -> str:
    """API keys keep their first characters, so that people can tell which one it was; our own secrets keep nothing."""
    return _secrets.sub(_masked, text)


def looks_like_a_key(text: str) -> bool:
    return "sk-" in text and _LOOKS_LIKE_A_KEY.search(text) is not None


class MaskingFormatter(logging.Formatter):
    """`2026-11-30T06:00:00.000Z WARNING tollhouse.build: text`, tracebacks included, without secrets.

    What goes on over several lines is indented, and other control characters are spelled out: whatever a client or a
    provider makes us say, it can't look like a line of the log.
    """

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return mask(super().format(record)).translate(_CONTROLS).replace("\n", _INDENT)


def _masked(match: re.Match[str]) -> str:
    return next((kept for kept in match.groupdict().values() if kept is not None), "") + "***"
