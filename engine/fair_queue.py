"""Whose turn it is: deficit round-robin between keys (Shreedhar and Varghese, SIGCOMM 1995). Knows no requests.

A key's cost is not known when its turn comes, because nobody knows how long an answer will be. So tokens are charged as
they run, and a key in debt waits until the rounds have paid it. Of two keys that always have something waiting, neither
gets more tokens ahead of the other than the quantum and what its requests that run at a time may still cost.
"""

from collections.abc import Collection

QUANTUM = 16  # tokens a key may run beyond the others before it is their turn


class DeficitRoundRobin:
    def __init__(self, quantum: int = QUANTUM) -> None:
        self._quantum = quantum
        self._balances: dict[str, int] = {}  # a key that is not here has 0

    def next(self, ring: Collection[str]) -> str:
        """The first key in the ring with something left of its quantum; if none has, rounds pass until one has."""
        balances = self._balances
        for key in ring:
            if balances.get(key, 0) > 0:
                return key
        self._pay(ring)
        return next(key for key in ring if balances[key] > 0)

    def charge(self, key: str, num_tokens: int) -> None:
        self._balances[key] = self._balances.get(key, 0) - num_tokens

    def forget(self) -> None:
        """Nobody waits: nobody owes anything to anybody."""
        self._balances.clear()

    def _pay(self, ring: Collection[str]) -> None:
        """As many rounds at once as give somebody in the ring a turn. Who is not in the ring saves nothing up."""
        least_debt = -max(self._balances.get(key, 0) for key in ring)
        paid = (least_debt // self._quantum + 1) * self._quantum
        for key in ring:
            self._balances[key] = self._balances.get(key, 0) + paid
        for key in [key for key in self._balances if key not in ring]:
            self._balances[key] += paid
            if self._balances[key] >= 0:  # also, so that keys that are seen once don't add up
                del self._balances[key]
