"""Tokens to text, a piece at a time. A token may be part of a character: bytes wait until their character is whole."""

import codecs
from collections.abc import Callable


class Detokenizer:
    """Incremental UTF-8 over what each token adds.

    bytes_after: of the token before (None: there is none) and the token, b"" for those without text. previous: the
    prompt's last token. U+FFFD stands for bytes that no continuation could make valid, never for a character that is
    under way; one that the end cuts off never comes.
    """

    def __init__(self, bytes_after: Callable[[int | None, int], bytes], previous: int | None = None) -> None:
        self._bytes_after = bytes_after
        self._previous = previous
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text that this token completes; "" while a character is unfinished."""
        added = self._bytes_after(self._previous, token_id)
        self._previous = token_id
        return self._decoder.decode(added)
