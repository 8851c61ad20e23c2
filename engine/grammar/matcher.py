"""How far one answer has come in its grammar, and what may follow. Knows no request and no logits."""

from __future__ import annotations

import llguidance
import numpy as np
import numpy.typing as npt

from engine.errors import InvalidRequest


class Matcher:
    """One for each answer: `fork` gives another of the same state. Not thread-safe.

    The end-of-sequence tokens are allowed exactly when the text so far is complete. An answer that has ended stays so,
    whatever is accepted afterwards.
    """

    def __init__(self, matcher: llguidance.LLMatcher, eos_ids: frozenset[int]) -> None:
        self._matcher = matcher
        self._eos_ids = eos_ids
        self._has_ended = False
        self._failure = ""

    @property
    def is_finished(self) -> bool:
        """Whether nothing but the end of the sequence may follow."""
        return self._has_ended or bool(self._matcher.is_stopped())

    @property
    def is_complete(self) -> bool:
        """Whether the text so far satisfies the grammar."""
        return self._has_ended or bool(self._matcher.is_accepting())

    @property
    def error(self) -> str:
        """What went wrong while masks were made, "" if nothing did: the grammar was too much work, or a dead end."""
        if self._failure:
            return self._failure
        return str(self._matcher.get_error()) if self._matcher.is_error() else ""

    def give_up(self, why: str) -> None:
        """Allow nothing from here on. A thread may still be at work on the mask: what it works on is not touched again.

        The one method that another thread may call.
        """
        self._failure = why

    def fill_mask(self, row: npt.NDArray[np.int32]) -> None:
        """row [ceil(V / 32)] int32: the bit of each allowed token is set, token 0 in the lowest of the first word.

        Of a failed matcher nothing is allowed. Lets go of the GIL.
        """
        assert row.dtype == np.int32
        assert row.flags.c_contiguous
        if self._failure:
            row[:] = 0
            return
        if self._has_ended:
            row[:] = 0
            for token_id in self._eos_ids:
                row.view(np.uint32)[token_id // 32] |= np.uint32(1 << token_id % 32)
            return
        self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        if self._matcher.is_error():
            row[:] = 0

    def accept(self, token_id: int) -> None:
        """Go on by one token. Raises InvalidRequest (param "grammar") if the mask did not allow it, or after a failure.

        A grammar can come to llguidance's limits here, too.
        """
        if self._has_ended:
            return
        if self._failure:
            raise _stuck(self._failure)
        if token_id in self._eos_ids:
            if not self.is_complete:
                raise InvalidRequest("the answer ended before its grammar was satisfied", "grammar")
            self._has_ended = True
        elif not self._matcher.consume_token(token_id):
            raise _stuck(self.error)

    def fork(self) -> Matcher:
        """Another matcher in the same state, from which it goes its own way."""
        copy = Matcher(self._matcher.deep_copy(), self._eos_ids)
        copy._has_ended = self._has_ended
        return copy


def _stuck(why: str) -> InvalidRequest:
    return InvalidRequest(f"the grammar can't be followed any further: {why.partition(chr(10))[0][:200]}", "grammar")
