"""Sees that no priority waits for ever: now and then a sequence of a worse one goes with the best. Knows no blocks.

Priorities are strict otherwise, and whoever waits behind a better one that never ends would starve (ageing:
Silberschatz et al., Operating System Concepts, on priority scheduling). Here one sequence at a time is a guest among
the best: so these keep all places but one, and all of them for PATIENCE_STEPS between two guests.
"""

from collections.abc import Sequence

from engine.request import Request, Status
from engine.waiting_queue import WaitingQueue

PATIENCE_STEPS = (
    256  # a request waits so long before it may be a guest, and the best priority has peace so long between two
)


class Ageing:
    def __init__(self) -> None:
        self.step = 0
        self._guest: Request | None = None
        self._free_since = 0

    def next(self, running: Sequence[Request], waiting: WaitingQueue) -> tuple[Request, int] | None:
        """Once a step: a request, and the better priority that it has from now on. `running` is in order of rank."""
        self.step += 1
        if self._guest is not None and self._guest.status is Status.FINISHED:
            self._guest, self._free_since = None, self.step
        if self._guest is None:
            self._guest = self._oldest_behind(running, waiting)
        best = _best(running, waiting)
        return (self._guest, best) if self._guest is not None and self._guest.priority > best else None

    def _oldest_behind(self, running: Sequence[Request], waiting: WaitingQueue) -> Request | None:
        """Of those that a better priority holds up: the one queued first, if it has waited for long enough."""
        latest = self.step - PATIENCE_STEPS
        if self._free_since > latest:
            return None
        best = _best(running, waiting)
        under_way = (each for each in running if each.num_pending > 1)
        behind = [each for each in (*waiting.heads(), *under_way) if each.priority > best and each.queued_at <= latest]
        return min(behind, key=lambda each: each.queued_at, default=None)


def _best(running: Sequence[Request], waiting: WaitingQueue) -> int:
    return min([each.priority for each in running[:1]] + waiting.priorities[:1], default=0)
