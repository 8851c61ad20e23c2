"""Places in one piece of memory for tensors of which not all live at the same time. Knows no tensor."""

from collections.abc import Sequence


class Lifetime:
    """`size` bytes, needed from the operation `first` to the operation `last`, both included."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.first: int | None = None
        self.last = -1

    def extend(self, now: int) -> None:
        self.first = now if self.first is None else min(self.first, now)
        self.last = max(self.last, now)

    def meets(self, other: "Lifetime") -> bool:
        if self.first is None or other.first is None:
            return False
        return self.first <= other.last and other.first <= self.last


def place(lifetimes: Sequence[Lifetime], alignment: int) -> tuple[int, list[int]]:
    """The size of all, and the offset of each: first fit, the largest first. No two that meet share a byte."""
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    for i in sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i].size):
        taken = sorted((offsets[j], offsets[j] + lifetimes[j].size) for j in placed if lifetimes[i].meets(lifetimes[j]))
        offset = 0
        for start, end in taken:
            if offset + lifetimes[i].size <= start:
                break
            offset = max(offset, -(-end // alignment) * alignment)
        offsets[i] = offset
        placed.append(i)
    return max((offsets[i] + lifetimes[i].size for i in placed), default=0), offsets
