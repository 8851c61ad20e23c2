"""Tokens to text, a piece at a time. A token may be part of a character: bytes wait until their character is whole."""

import codecs
from collections.abc import Callable


class Detokenizer:
    """Incremental UTF-8 over what each token adds.

    bytes_after: of the token before (None: there is none) and the token, b"" for those without text. previous: the
    prompt's last token. Bytes that no continuation could make valid are left out, and so is a character that the end
    cuts off: U+FFFD comes only where the model wrote it.
    """

    def __init__(self, bytes_after: Callable[[int | None, int], bytes], previous: int | None = None) -> None:
        self._bytes_after = bytes_after
        self._previous = previous
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")

    def push(self, token_id: int) -> str:
        """The text that this token completes; "" while a character is unfinished."""
        added = self._bytes_after(self._previous, token_id)
        self._previous = token_id
        return self._decoder.decode(added)
