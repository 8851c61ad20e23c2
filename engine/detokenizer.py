"""Tokens to text, a piece at a time. A token may be part of a character: bytes wait until their character is whole."""

import codecs
from collections.abc import Callable


class Detokenizer:
    """Incremental UTF-8 over the raw bytes of tokens; `token_bytes` gives b"" for tokens that have no text.

    The pieces joined are `b"".join(token bytes).decode("utf-8", errors="replace")`: U+FFFD stands for bytes that no
    continuation could make valid, and for a character that the end cut off; never for one that is still under way.
    """

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text that this token completes; "" while a character is unfinished."""
        return self._decoder.decode(self._token_bytes(token_id))

    def flush(self) -> str:
        """What the end leaves over."""
        return self._decoder.decode(b"", final=True)
