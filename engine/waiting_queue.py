"""Who runs next: the best priority; in it those that come back, then the fairness keys in turn, then arrival."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from engine.fair_queue import DeficitRoundRobin
from engine.request import Request


def _rank(request: Request) -> tuple[int, int, int]:
    return request.rank


class _PriorityClass:
    """Sorted lists: of those that have had their turn before, and one for each fairness key."""

    def __init__(self) -> None:
        self.returning: list[Request] = []
        self.by_key: dict[str, list[Request]] = {}  # the ring of the turns; no list is empty

    def line_of(self, request: Request) -> list[Request]:
        if request.had_its_turn:
            return self.returning
        return self.by_key.setdefault(request.params.fairness_key, [])

    def __iter__(self) -> Iterator[Request]:
        yield from self.returning
        for line in self.by_key.values():
            yield from line


class WaitingQueue:
    """A preempted request goes before all others of its priority: it has lost its blocks, and must not lose its place

    too. So do the further choices of a request whose prompt has been computed.
    """

    def __init__(self) -> None:
        self._classes: dict[int, _PriorityClass] = {}  # none is empty
        self._priorities: list[int] = []  # sorted
        self._turns = DeficitRoundRobin()
        self._num_requests = 0  # counted, because another thread may ask for it at any time

    def push(self, request: Request) -> None:
        priority = request.priority
        if priority not in self._classes:
            self._classes[priority] = _PriorityClass()
            insort(self._priorities, priority)
        insort(self._classes[priority].line_of(request), request, key=_rank)
        self._num_requests += 1

    def peek(self) -> Request | None:
        return self._head(self._priorities[0]) if self._priorities else None

    def heads(self) -> list[Request]:
        """The first in line of each priority, the best first."""
        return [self._head(priority) for priority in self._priorities]

    def remove(self, request: Request) -> None:
        priority = request.priority
        members = self._classes[priority]
        line = members.line_of(request)
        index = bisect_left(line, request.rank, key=_rank)
        assert line[index] is request, f"request {request.request_id} is not waiting"
        del line[index]
        if not line and line is not members.returning:
            del members.by_key[request.params.fairness_key]
        if not members.returning and not members.by_key:
            del self._classes[priority]
            self._priorities.remove(priority)
        self._num_requests -= 1
        if not self._num_requests:
            self._turns.forget()

    def charge(self, key: str, num_tokens: int) -> None:
        """A request of this key runs so many tokens. Costs nothing while nobody waits."""
        if self._num_requests:
            self._turns.charge(key, num_tokens)

    @property
    def priorities(self) -> list[int]:
        """Of those who wait, the best first."""
        return list(self._priorities)

    def keys(self, priority: int) -> set[str]:
        """The fairness keys of those who wait with this priority."""
        members = self._classes.get(priority)
        return members.by_key.keys() | {each.params.fairness_key for each in members.returning} if members else set()

    def _head(self, priority: int) -> Request:
        members = self._classes[priority]
        return members.returning[0] if members.returning else members.by_key[self._turns.next(members.by_key)][0]

    def __iter__(self) -> Iterator[Request]:
        for priority in self._priorities:
            yield from self._classes[priority]

    def __len__(self) -> int:
        return self._num_requests
