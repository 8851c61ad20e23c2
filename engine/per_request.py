"""What a part of the runner remembers of each request until it is finished. Nobody tells it of the end: it looks."""

from collections.abc import Callable
from typing import Generic, TypeVar

from engine.request import Request, Status

State = TypeVar("State")
_FEW = 128  # states that are kept before those of finished requests are looked for


class PerRequest(Generic[State]):
    """A state is made at first use. Looking at all whenever their number has doubled costs next to nothing."""

    def __init__(self, make: Callable[[Request], State]) -> None:
        self._make = make
        self._states: dict[Request, State] = {}
        self._sweep_at = _FEW

    def of(self, request: Request) -> State:
        state = self._states.get(request)
        if state is None:
            if len(self._states) >= self._sweep_at:
                self._forget_finished()
            state = self._states[request] = self._make(request)
        return state

    def __len__(self) -> int:
        return len(self._states)

    def _forget_finished(self) -> None:
        self._states = {r: state for r, state in self._states.items() if r.status is not Status.FINISHED}
        self._sweep_at = max(_FEW, 2 * len(self._states))
