"""Who runs next: preempted requests first, then priority, then the fairness keys in turn, then arrival."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from engine.request import Request


def _rank(request: Request) -> tuple[int, int]:
    return request.rank


class WaitingQueue:
    """Sorted lists, one for each fairness key. Keys take turns among those whose first request has the best priority.

    A preempted request goes before all others of its priority, in order of arrival: it has lost its blocks, and must
    not lose its place too.
    """

    def __init__(self) -> None:
        self._preempted: list[Request] = []
        self._by_key: dict[str, list[Request]] = {}  # in the order of the turns; no list is empty
        self._num_requests = 0  # counted, because another thread may ask for it at any time

    def push(self, request: Request) -> None:
        insort(self._line_of(request), request, key=_rank)
        self._num_requests += 1

    def peek(self) -> Request | None:
        fair = min(self._by_key.values(), key=lambda line: line[0].params.priority)[0] if self._by_key else None
        if self._preempted and (fair is None or self._preempted[0].params.priority <= fair.params.priority):
            return self._preempted[0]
        return fair

    def take(self, request: Request) -> None:
        """Remove a request that is admitted: its key had its turn."""
        self.remove(request)
        key = request.params.fairness_key
        if not request.num_preemptions and key in self._by_key:
            self._by_key[key] = self._by_key.pop(key)

    def remove(self, request: Request) -> None:
        line = self._line_of(request)
        index = bisect_left(line, request.rank, key=_rank)
        assert line[index] is request, f"request {request.request_id} is not waiting"
        del line[index]
        self._num_requests -= 1
        if not line and line is not self._preempted:
            del self._by_key[request.params.fairness_key]

    def __iter__(self) -> Iterator[Request]:
        yield from self._preempted
        for line in self._by_key.values():
            yield from line

    def __len__(self) -> int:
        return self._num_requests

    def _line_of(self, request: Request) -> list[Request]:
        if request.num_preemptions:
            return self._preempted
        return self._by_key.setdefault(request.params.fairness_key, [])
