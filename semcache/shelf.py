"""The answers this process holds: found by exact key, by id or by nearest question, least recently used first out.

Keeps texts, vectors and the byte budget in step: an entry that leaves takes its vector along, and whoever keeps a copy
elsewhere is told. Knows no policy, no time.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from semcache.types import Question, StoredAnswer

if TYPE_CHECKING:
    from semcache.index import VectorIndex
    from semcache.vector import Vector, Vectors


class Entry:
    """A stored answer, the question that it answers and its size; `number` names it to the index."""

    __slots__ = ("answer", "number", "question", "size")

    def __init__(self, number: int, question: Question, answer: StoredAnswer, size: int) -> None:
        self.number = number
        self.question = question
        self.answer = answer
        self.size = size


class Shelf:
    """At most `max_bytes` of entries, by their estimated size in memory."""

    def __init__(self, max_bytes: int, left: Callable[[Entry], None] = lambda _: None) -> None:
        """`left` is told of every entry that leaves, for whatever reason."""
        self.bytes = 0
        self.num_evictions = 0
        self.vectors: VectorIndex | None = None  # from the first vector on
        self._max_bytes = max_bytes
        self._left = left
        self._by_key: OrderedDict[bytes, Entry] = OrderedDict()
        self._by_number: dict[int, Entry] = {}
        self._by_id: dict[str, Entry] = {}
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, entry: Entry) -> bool:
        return entry.number in self._by_number

    def by_key(self, key: bytes) -> Entry | None:
        return self._by_key.get(key)

    def by_id(self, entry_id: str) -> Entry | None:
        return self._by_id.get(entry_id)

    def nearest(self, partition: bytes, vector: "Vector", k: int) -> list[tuple[Entry, float]]:
        """The at most `k` entries of the partition whose questions are nearest, with their cosines, nearest first."""
        if self.vectors is None:
            return []
        found = self.vectors.search(partition, vector, k)
        return [(self._by_number[neighbour.number], neighbour.similarity) for neighbour in found]

    def vector_of(self, question: Question, embedder_id: str) -> "Vector | None":
        """The (d,) vector by which this very question is found already; None if it is not, or by another embedder."""
        entry = self._by_key.get(question.exact_key)
        if entry is None or entry.question != question:
            return None
        if self.vectors is None or self.vectors.embedder_id != embedder_id:
            return None
        return self.vectors.vector(entry.number)

    def touch(self, entry: Entry) -> None:
        """Counts as a use. An entry that has left meanwhile stays away."""
        if entry in self:
            self._by_key.move_to_end(entry.question.exact_key)

    def add(
        self,
        question: Question,
        answer: StoredAnswer,
        size: int,
        vector: "Vector | None" = None,
        embedder_id: str = "",
        number: int | None = None,
    ) -> Entry:
        """Takes the place of an entry with the same key or id, then evicts what exceeds the budget.

        `size` is what it counts against the budget. `vector` is (d,) float32 of length 1 and belongs to `embedder_id`;
        another embedder's first vector drops all vectors so far, whose entries are then found by exact key only. Raises
        CacheError for a vector that can't be. `number` is that of an entry from an earlier life, and higher than any.
        """
        entry = Entry(self._next_number if number is None else number, question, answer, size)
        assert entry.number >= self._next_number
        if vector is not None:
            self._index_of(embedder_id, vector.shape[0]).add(entry.number, question.partition, vector)
        self._next_number = entry.number + 1
        for old in (self._by_key.get(question.exact_key), self._by_id.get(answer.entry_id)):
            if old is not None and old in self:
                self.remove(old)
        self._by_key[question.exact_key] = self._by_number[entry.number] = self._by_id[answer.entry_id] = entry
        self.bytes += entry.size
        self._make_room()
        return entry

    def index(self, entries: list[Entry], vectors: "Vectors", embedder_id: str) -> None:
        """Gives (n, d) float32 vectors of length 1 to n entries without any; those that have left are passed over."""
        here = [row for row, entry in enumerate(entries) if entry in self]
        numbers = [entries[row].number for row in here]
        partitions = [entries[row].question.partition for row in here]
        self._index_of(embedder_id, vectors.shape[1]).add_many(numbers, partitions, vectors[here])

    def remove(self, entry: Entry) -> None:
        del self._by_key[entry.question.exact_key]
        del self._by_number[entry.number]
        del self._by_id[entry.answer.entry_id]
        self.bytes -= entry.size
        if self.vectors is not None:
            self.vectors.remove(entry.number)
        self._left(entry)

    def resize(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._make_room()

    def clear(self, goes: Callable[[Entry], bool]) -> int:
        """Removes the entries that go; returns how many they were."""
        leaving = [entry for entry in self._by_key.values() if goes(entry)]
        for entry in leaving:
            self.remove(entry)
        return len(leaving)

    def _index_of(self, embedder_id: str, dimension: int) -> "VectorIndex":
        if self.vectors is None or self.vectors.embedder_id != embedder_id:
            from semcache.index import VectorIndex  # FAISS and numpy come with it

            self.vectors = VectorIndex(embedder_id, dimension)
        return self.vectors

    def _make_room(self) -> None:
        while self.bytes > self._max_bytes:
            self.remove(next(iter(self._by_key.values())))
            self.num_evictions += 1
