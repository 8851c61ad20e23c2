"""Nearest neighbours within a partition. Knows vectors and entry numbers; nothing of texts, answers or time.

Every partition is a FAISS index of its own, so a look-up can't see another partition's vectors at all: no filter to get
wrong, and thousands of small partitions cost what they hold. The index is flat (exact: nothing is lost to recall) over
half-precision codes: half the memory of float32, about 4 ms for 100,000 vectors, and a cosine off by less than 1e-4.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from semcache.errors import CacheError
from semcache.vector import Vector, Vectors

SHRINK_BELOW = 0.5  # a partition with fewer live rows than this share of its largest size is rebuilt
MIN_ROWS_TO_SHRINK = 256


class Neighbour:
    """An entry's number and its cosine to the query."""

    __slots__ = ("number", "similarity")

    def __init__(self, number: int, similarity: float) -> None:
        self.number = number
        self.similarity = similarity


class VectorIndex:
    """Vectors of one embedder, by partition.

    `embedder_id` and the dimension are the index's identity: a vector of another length is refused, and after a change
    of the embedder one starts a new index.
    """

    def __init__(self, embedder_id: str, dimension: int) -> None:
        """Raises CacheError when FAISS is not installed."""
        require_faiss()
        self.embedder_id = embedder_id
        self.dimension = dimension
        self._partitions: dict[bytes, _Partition] = {}
        self._places: dict[int, tuple[bytes, int]] = {}  # entry number -> partition, row

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, number: int) -> bool:
        return number in self._places

    @property
    def num_partitions(self) -> int:
        return len(self._partitions)

    @property
    def code_bytes(self) -> int:
        """Memory held for codes: live rows and the room that compaction has not yet given back."""
        return sum(partition.peak for partition in self._partitions.values()) * self.dimension * 2

    def add(self, number: int, partition: bytes, vector: Vector) -> None:
        """Adds a (d,) float32 vector of length 1. Raises CacheError for any other; the number must be new."""
        assert number not in self._places
        if vector.shape != (self.dimension,):
            raise CacheError(
                f"a vector of shape {vector.shape}, but embedder {self.embedder_id} gives ({self.dimension},)"
            )
        if not abs(float(np.linalg.norm(vector)) - 1.0) < 1e-2:
            raise CacheError("a vector must be finite and of length 1")
        self._add(partition, [number], vector.reshape(1, -1))

    def add_many(self, numbers: list[int], partitions: list[bytes], vectors: Vectors) -> None:
        """Adds (n, d) float32 vectors, known to be of length 1, in a fraction of the time of n calls of `add`."""
        rows_of: dict[bytes, list[int]] = {}
        for row, partition in enumerate(partitions):
            rows_of.setdefault(partition, []).append(row)
        for partition, rows in rows_of.items():
            self._add(partition, [numbers[row] for row in rows], vectors[rows])

    def vector(self, number: int) -> Vector | None:
        """The (d,) float32 vector of an entry, as precise as it is kept; None if it has none."""
        place = self._places.get(number)
        if place is None:
            return None
        partition, row = place
        return self._partitions[partition].vector(row)

    def remove(self, number: int) -> bool:
        """Forgets an entry's vector at once: no later search returns it. False if it has none."""
        place = self._places.pop(number, None)
        if place is None:
            return False
        partition, row = place
        home = self._partitions[partition]
        moved = home.remove(row)
        if moved is not None:
            self._places[moved] = (partition, row)
        if not home.numbers:
            del self._partitions[partition]
        return True

    def search(self, partition: bytes, vector: Vector, k: int) -> list[Neighbour]:
        """The at most `k` nearest entries of the partition, nearest first, with their cosines in [-1, 1]."""
        home = self._partitions.get(partition)
        return home.search(vector, k) if home is not None else []

    def _add(self, partition: bytes, numbers: list[int], vectors: Vectors) -> None:
        home = self._partitions.get(partition)
        if home is None:
            home = self._partitions[partition] = _Partition(self.dimension)
        first = home.add(numbers, vectors)
        for row, number in enumerate(numbers, first):
            self._places[number] = (partition, row)

    def clear(self) -> None:
        self._partitions.clear()
        self._places.clear()


class _Partition:
    """One flat index; `numbers[row]` says whose vector lies in a row."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._index = self._new_index()
        self.numbers: list[int] = []
        self.peak = 0

    def _new_index(self) -> Any:
        faiss = require_faiss()
        return faiss.IndexScalarQuantizer(self._dimension, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)

    def add(self, numbers: list[int], vectors: Vectors) -> int:
        """The row of the first of them; the others follow."""
        first = len(self.numbers)
        self._index.add(np.ascontiguousarray(vectors, np.float32))
        self.numbers += numbers
        self.peak = max(self.peak, len(self.numbers))
        return first

    def vector(self, row: int) -> Vector:
        vector: Vector = self._index.reconstruct(row)  # (d,)
        return vector

    def remove(self, row: int) -> int | None:
        """Moves the last row into the hole and says whose it is; None if the hole was the last row.

        FAISS's own remove_ids shifts every later row: 11 ms in 100,000 vectors, where this takes microseconds.
        """
        last = len(self.numbers) - 1
        moved = None
        if row != last:
            codes = self._codes()
            codes[row] = codes[last]
            moved = self.numbers[row] = self.numbers[last]
        self.numbers.pop()
        self._index.codes.resize(last * self._index.code_size)
        self._index.ntotal = last
        if self.peak > MIN_ROWS_TO_SHRINK and last < self.peak * SHRINK_BELOW:
            self._shrink()
        return moved

    def _codes(self) -> npt.NDArray[np.uint8]:
        """(n, 2d) a view of the index's own memory, valid until the next change."""
        flat: npt.NDArray[np.uint8] = require_faiss().rev_swig_ptr(self._index.codes.data(), self._index.codes.size())
        return flat.reshape(-1, self._index.code_size)

    def _shrink(self) -> None:
        """A C++ vector never gives memory back by itself: copy what lives into a new one."""
        fresh = self._new_index()
        if self.numbers:
            fresh.add_sa_codes(self._codes())
        self._index = fresh
        self.peak = len(self.numbers)

    def search(self, vector: Vector, k: int) -> list[Neighbour]:
        query = np.ascontiguousarray(vector, np.float32).reshape(1, -1)
        similarities, rows = self._index.search(query, min(k, len(self.numbers)))  # (1, k), (1, k)
        return [
            Neighbour(self.numbers[row], max(-1.0, min(1.0, similarity)))
            for row, similarity in zip(rows[0].tolist(), similarities[0].tolist(), strict=True)
            if row >= 0
        ]


def require_faiss() -> Any:
    """The faiss module, imported at the first call. Raises CacheError, saying what to install, when there is none."""
    try:
        import faiss
    except ImportError as error:
        raise CacheError(
            "the semantic cache needs FAISS: pip install 'tollhouse[cpu]' (or [gpu]); or set cache.semantic = false"
        ) from error
    return faiss
