"""The labelled examples that a learner keeps: the latest ones, as many as fit."""

import zlib

import numpy as np

from semcache.bound.logistic import Array
from semcache.errors import CacheError

MAX_LABELS = 8192


class Labels:
    """Rows of `num_features` numbers, each with whether the answers were the same; the oldest ones leave first."""

    def __init__(self, num_features: int) -> None:
        self.num_features = num_features
        self._rows = np.empty((MAX_LABELS, num_features))
        self._values = np.empty(MAX_LABELS)
        self._num_seen = 0

    def __len__(self) -> int:
        return min(self._num_seen, MAX_LABELS)

    @property
    def rows(self) -> Array:
        """(n, f) in no order that means anything."""
        return self._rows[: len(self)]

    @property
    def values(self) -> Array:
        """(n,) 1.0 for the same answer, 0.0 for another one."""
        return self._values[: len(self)]

    def add(self, row: Array, same: bool) -> bool:
        """False, and nothing kept, if the (f,) row isn't finite. Raises CacheError if it has another shape."""
        if row.shape != (self.num_features,):
            raise CacheError(f"features of shape {row.shape}, but the learner was made for ({self.num_features},)")
        if not np.isfinite(row).all():
            return False
        place = self._num_seen % MAX_LABELS
        self._rows[place], self._values[place] = row, float(same)
        self._num_seen += 1
        return True

    def clear(self) -> None:
        self._num_seen = 0

    def packed(self) -> bytes:
        """The examples in float32, compressed, oldest first."""
        table = np.column_stack([self.rows, self.values]).astype("<f4")  # (n, f + 1)
        oldest = self._num_seen % MAX_LABELS if self._num_seen > MAX_LABELS else 0
        return self.num_features.to_bytes(2, "little") + zlib.compress(np.roll(table, -oldest, axis=0).tobytes())

    @classmethod
    def unpacked(cls, data: bytes) -> "Labels":
        """The examples of `packed`. Raises ValueError or zlib.error for anything else."""
        labels = cls(int.from_bytes(data[:2], "little"))
        table = np.frombuffer(zlib.decompress(data[2:]), "<f4").reshape(-1, labels.num_features + 1)
        for row in table[-MAX_LABELS:].astype(np.float64):
            labels.add(row[:-1], row[-1] > 0.5)
        return labels
