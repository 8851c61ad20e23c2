"""What a tenant, its teams and its keys may use per minute, at once, a day and a month: all enforced together.

The order of a request: `admit` counts it and takes its slots, `reserve` takes the tokens and the dollars of the worst
case, `settle` says what it really used (nothing on a hit or an error) and leaves the slots. A refused request that was
admitted stays counted, as with OpenAI.
"""

import time
from collections.abc import Mapping

from gateway.ids import new_id
from gateway.tenants.counting import Counting, Nobody, Watch, WhenAway
from gateway.tenants.periods import PeriodKind
from gateway.tenants.redis_link import RedisLink
from gateway.tenants.shared_counts import SharedCounts
from gateway.tenants.spending import NO_LEDGER, Spending
from gateway.tenants.tally import Claim
from gateway.tenants.terms import Terms, terms_of
from gateway.tenants.tickets import UNLIMITED, CountedTicket, Ticket
from gateway.tenants.types import Budget, Limits, Principal

__all__ = ["Limiter", "Ticket"]


class Limiter:
    """`defaults` are for tenants that name no limit of their own. Raises ValueError for a useless Redis URL."""

    def __init__(
        self,
        defaults: Limits,
        redis_url: str = "",
        *,
        spending: Spending | None = None,
        watch: Watch | None = None,
        when_redis_is_away: WhenAway = "local",
        lease_s: float = 60.0,
    ) -> None:
        self._defaults = defaults
        self._budgets: Mapping[str, tuple[Budget, ...]] = {}
        self._terms: dict[str, tuple[Principal, Terms]] = {}  # by the key's id
        link = RedisLink(redis_url) if redis_url else None
        shared = SharedCounts(link, lease_s) if link is not None else None
        self._counting = Counting(shared, spending or Spending(NO_LEDGER), watch or Nobody(), when_redis_is_away)
        if link is not None:
            link.on_return = self._counting.rejoin

    def set_defaults(self, defaults: Limits, when_redis_is_away: WhenAway = "local") -> None:
        """After a change of the config. Allowances keep what was used of them."""
        self._defaults = defaults
        self._counting.when_away = when_redis_is_away
        self._terms.clear()

    def set_budgets(self, budgets: Mapping[str, tuple[Budget, ...]]) -> None:
        """By their owner's id. What was spent so far counts against a new budget too."""
        self._counting.spending.doubt(_owned(budgets) - _owned(self._budgets))
        self._budgets = budgets
        self._terms.clear()

    @property
    def shared(self) -> bool:
        """Whether limits are counted in Redis at this moment."""
        return self._counting.is_shared

    async def admit(self, principal: Principal, request_id: str = "", at: float | None = None) -> Ticket:
        """Counts the request, which began `at` (seconds since the epoch; None: now), and takes its slots.

        Raises RateLimitError, and has then taken nothing; CountsAway.
        """
        terms = self._terms_of(principal)
        if not terms:
            return UNLIMITED
        claim = Claim(request_id or new_id(), time.time() if at is None else at, terms)
        ticket = CountedTicket(claim, self._counting, self._counting.here())
        await ticket.admit()
        return ticket

    async def aclose(self) -> None:
        await self._counting.aclose()

    def _terms_of(self, principal: Principal) -> Terms:
        known = self._terms.get(principal.key.id)
        if known is not None and known[0] is principal:
            return known[1]
        terms = terms_of(principal, self._defaults, self._budgets)
        self._terms[principal.key.id] = (principal, terms)
        return terms


def _owned(budgets: Mapping[str, tuple[Budget, ...]]) -> set[tuple[str, PeriodKind]]:
    return {(owner_id, budget.period) for owner_id, owned in budgets.items() for budget in owned}
