"""How much of a checkpoint's weights has been read, told to whoever shows it. Knows no file format."""

from collections.abc import Iterable

from engine.types import LoadProgress


class Meter:
    """Counts each tensor once, however often it is asked for."""

    def __init__(self, total: int, report: LoadProgress | None) -> None:
        self._total = total
        self._report = report
        self._counted: set[str] = set()
        self._done = 0

    def count(self, name: str, num_bytes: int) -> None:
        if name in self._counted:
            return
        self._counted.add(name)
        self._done = min(self._done + num_bytes, self._total)
        if self._report is not None:
            self._report(self._done, self._total)

    def uncounted(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self._counted]
