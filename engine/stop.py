"""Find stop strings in a text that comes in pieces, and hold back only what may still become one. Knows no tokens."""

from collections.abc import Sequence


class _Matcher:
    """How much of one stop string the text ends with (Knuth, Morris, Pratt 1977: linear in the text).

    The table grows with what has matched: a long stop string costs nothing before a text comes near it.
    """

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._fallback: list[int] = []  # the longest proper border of stop[: i + 1]

    def push(self, character: str) -> bool:
        while self.matched and self.stop[self.matched] != character:
            self.matched = self._fallback[self.matched - 1]
        self.matched += self.stop[self.matched] == character
        if self.matched > len(self._fallback):
            self._extend()
        return self.matched == len(self.stop)

    def _extend(self) -> None:
        end = len(self._fallback)
        border = self._fallback[-1] if end else 0
        while border and self.stop[end] != self.stop[border]:
            border = self._fallback[border - 1]
        self._fallback.append(border + (self.stop[end] == self.stop[border]) if end else 0)


class StopChecker:
    """The stop string that is complete first ends the text just before it, however the text is cut into pieces.

    Of two that are complete at the same character, the longer one counts.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.stopped = False
        self._matchers = [_Matcher(stop) for stop in stops]
        self._held = ""

    def push(self, text: str) -> str:
        """The text that can be shown now. After a stop string, `stopped` is True and nothing more comes."""
        if not self._matchers:
            return text
        if self.stopped:
            return ""
        self._held += text
        start = len(self._held) - len(text)
        for end in range(start + 1, len(self._held) + 1):
            complete = [len(m.stop) for m in self._matchers if m.push(self._held[end - 1])]
            if complete:
                self.stopped = True
                return self._take(end - max(complete))
        return self._take(len(self._held) - max(m.matched for m in self._matchers))

    def flush(self) -> str:
        """The answer is over: what was held back did not become a stop string."""
        return "" if self.stopped else self._take(len(self._held))

    def _take(self, num_characters: int) -> str:
        shown, self._held = self._held[:num_characters], self._held[num_characters:]
        return shown
