"""The cached entries of this process: by exact key, by number and by id, least recently used first. Knows no vectors."""

from collections import OrderedDict

from semcache.types import Question, StoredAnswer


class Entry:
    """A stored answer, the question that it answers and its size; `number` names it to the index."""

    __slots__ = ("answer", "number", "question", "size")

    def __init__(self, number: int, question: Question, answer: StoredAnswer, size: int) -> None:
        self.number = number
        self.question = question
        self.answer = answer
        self.size = size


class Entries:
    """Three ways to find an entry, one order of eviction."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[bytes, Entry] = OrderedDict()
        self._by_number: dict[int, Entry] = {}
        self._by_id: dict[str, Entry] = {}
        self._next_number = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def by_key(self, key: bytes) -> Entry | None:
        return self._by_key.get(key)

    def by_number(self, number: int) -> Entry:
        return self._by_number[number]

    def by_id(self, entry_id: str) -> Entry | None:
        return self._by_id.get(entry_id)

    def touch(self, entry: Entry) -> None:
        self._by_key.move_to_end(entry.question.exact_key)

    def add(self, question: Question, answer: StoredAnswer, size: int) -> Entry:
        """The key and the id must be free."""
        assert question.exact_key not in self._by_key
        assert answer.entry_id not in self._by_id
        entry = Entry(self._next_number, question, answer, size)
        self._next_number += 1
        self._by_key[question.exact_key] = self._by_number[entry.number] = self._by_id[answer.entry_id] = entry
        self.bytes += size
        return entry

    def remove(self, entry: Entry) -> None:
        del self._by_key[entry.question.exact_key]
        del self._by_number[entry.number]
        del self._by_id[entry.answer.entry_id]
        self.bytes -= entry.size

    def oldest(self) -> Entry:
        """The least recently used."""
        return next(iter(self._by_key.values()))

    def clear(self) -> None:
        for table in (self._by_key, self._by_number, self._by_id):
            table.clear()
        self.bytes = 0
