"""Budgets hold under concurrency, in one process and through Redis; what is not spent is given back.

Cases F33 (a hit is free) and F35 (budgets that concurrency walks through) of the list of real complaints.
"""

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.errors import RateLimitError
from gateway.store.errors import StoreUnavailable
from gateway.tenants.limits import Limiter, Ticket
from gateway.tenants.periods import period_at
from gateway.tenants.refusals import BudgetExceeded, CountsAway
from gateway.tenants.types import Limits, Principal
from tests.conftest import RedisServer
from tests.support.budgets import MIDNIGHT, NOON, RememberedBooks, budget, by_owner, limiter, principal

pytestmark = pytest.mark.anyio
USD = 10**9


@pytest.fixture(params=["here", "redis"])
def where(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "here" else str(request.getfixturevalue("redis_url"))


@pytest.fixture
def books() -> RememberedBooks:
    return RememberedBooks()


async def reserve(gate: Limiter, cost: int, who: Principal | None = None, at: float = NOON) -> Ticket:
    ticket = await gate.admit(who or principal(), at=at)
    try:
        await ticket.reserve(10, cost)
    except BaseException:
        await ticket.settle()
        raise
    return ticket


async def spend(gate: Limiter, cost: int, who: Principal | None = None, at: float = NOON) -> None:
    await (await reserve(gate, cost, who, at)).settle(10, cost)


async def why_not(gate: Limiter, cost: int) -> str | None:
    try:
        await (await reserve(gate, cost)).settle()
    except BudgetExceeded as error:
        return error.message
    return None


async def flush(url: str) -> None:
    client = Redis.from_url(url)
    await client.flushall()
    await client.aclose()


def num_admitted(outcomes: list[Ticket | BaseException]) -> int:
    assert all(isinstance(each, Ticket | BudgetExceeded) for each in outcomes), outcomes
    return sum(isinstance(each, Ticket) for each in outcomes)


@pytest.mark.parametrize(("kind", "owner"), [("tenant", "t1"), ("team", "m1"), ("key", "k1")])
async def test_fifty_at_once_against_a_budget_for_three(
    where: str, books: RememberedBooks, kind: Any, owner: str
) -> None:
    gates = [limiter(where, books, budget(kind, owner, 3 * USD)) for _ in range(2 if where else 1)]
    outcomes = await asyncio.gather(
        *(reserve(gates[number % len(gates)], USD) for number in range(50)), return_exceptions=True
    )
    assert num_admitted(outcomes) == 3
    for gate in gates:
        await gate.aclose()


async def test_the_ledger_is_asked_once_for_all_who_come_at_once(where: str, books: RememberedBooks) -> None:
    books.settle(principal(), NOON, USD)
    gate = limiter(where, books, budget("tenant", "t1", 3 * USD), budget("key", "k1", 10 * USD, "day"))
    outcomes = await asyncio.gather(*(reserve(gate, USD) for _ in range(50)), return_exceptions=True)
    assert num_admitted(outcomes) == 2
    assert books.num_asked == 2  # the day and the month
    await gate.aclose()


async def test_all_budgets_and_limits_hold_together_and_a_refusal_takes_nothing(
    where: str, books: RememberedBooks
) -> None:
    who = principal(limits={"key": Limits(tokens_per_minute=100, concurrent_requests=2)})
    gate = limiter(where, books, budget("tenant", "t1", 5 * USD), budget("key", "k1", USD, "day"))
    await (await reserve(gate, USD, who)).settle(10, USD // 2)
    for _ in range(5):
        with pytest.raises(BudgetExceeded, match=r"the day's budget of \$1\.0 that this key has"):
            await reserve(gate, USD, who)
    other = principal(key="k2")
    tickets = [await reserve(gate, USD, other) for _ in range(4)]  # 0.5 + 4 of 5: the refused left nothing behind
    with pytest.raises(BudgetExceeded, match="this tenant has"):
        await reserve(gate, USD, other)
    ticket = await gate.admit(who, at=NOON)
    with pytest.raises(RateLimitError, match="more than the 100 per minute that this key has"):
        await ticket.reserve(101, 1)
    await ticket.settle()
    await tickets[0].settle(10, 0)
    await reserve(gate, USD, other)
    await gate.aclose()


async def test_limits_of_a_team_and_a_key_hold_beside_the_tenants(where: str, books: RememberedBooks) -> None:
    limits = {"tenant": Limits(requests_per_minute=100), "team": Limits(requests_per_minute=3)}
    gate = limiter(where, books)
    for key in ("k1", "k2", "k3"):
        await gate.admit(principal(key=key, limits=limits))
    with pytest.raises(RateLimitError, match="3 requests per minute for this team") as refused:
        await gate.admit(principal(key="k4", limits=limits))
    assert refused.value.headers["x-ratelimit-limit-requests"] == "3"
    await gate.admit(principal(team=None, key="k5", limits=limits))
    single = principal(team=None, key="k6", limits={"key": Limits(concurrent_requests=1)})
    await gate.admit(single)
    with pytest.raises(RateLimitError, match="this key may run 1 concurrently"):
        await gate.admit(single)
    await gate.aclose()


async def test_what_is_not_spent_comes_back_and_a_hit_spends_nothing(where: str, books: RememberedBooks) -> None:
    gate = limiter(where, books, budget("tenant", "t1", USD))
    for _ in range(20):
        await (await reserve(gate, USD)).settle()  # an error, a client that left
        hit = await gate.admit(principal(), at=NOON)
        await hit.settle()
    await (await reserve(gate, USD)).settle(10, 400_000_000)
    ticket = await reserve(gate, 600_000_000)
    with pytest.raises(BudgetExceeded, match="Running requests hold what is left") as refused:
        await reserve(gate, 1)
    assert refused.value.headers["retry-after"] == "1"  # the other may well use less
    assert "x-should-retry" not in refused.value.headers
    await ticket.settle(10, 0)
    await spend(gate, 600_000_000)
    await gate.aclose()


async def test_a_spent_budget_says_which_and_until_when(where: str, books: RememberedBooks) -> None:
    gate = limiter(where, books, budget("team", "m1", USD, "month"))
    await spend(gate, USD)
    with pytest.raises(BudgetExceeded) as refused:
        await reserve(gate, 1)
    error = refused.value
    assert (error.status, error.type, error.code) == (429, "insufficient_quota", "budget_exceeded")
    assert "the month's budget of $1.0 that this team has" in error.message
    assert "2026-12-01T00:00:00Z" in error.message
    assert error.headers.get("x-should-retry") == "false" or int(error.headers["retry-after"]) <= 60
    with pytest.raises(BudgetExceeded, match="Lower max_tokens"):
        await reserve(gate, 2 * USD)
    await gate.aclose()


async def test_a_free_request_passes_a_spent_budget(where: str, books: RememberedBooks) -> None:
    gate = limiter(where, books, budget("tenant", "t1", 0))
    await (await reserve(gate, 0)).settle(10, 0)
    with pytest.raises(BudgetExceeded):
        await reserve(gate, 1)
    await gate.aclose()


async def test_a_soft_budget_refuses_nothing_and_warns(where: str, books: RememberedBooks) -> None:
    gate = limiter(where, books, budget("tenant", "t1", USD, hard=False, warn_percents=(50,)))
    first = await reserve(gate, 400_000_000)
    await first.settle(10, 400_000_000)
    assert b"x-tollhouse-budget-warning" not in dict(first.headers())
    second = await reserve(gate, 900_000_000)
    await second.settle(10, 900_000_000)
    assert dict(second.headers())[b"x-tollhouse-budget-warning"] == b"month budget of this tenant: 130% of $1.0 spent"
    third = await reserve(gate, USD)  # a stream's headers leave before it is settled
    assert b"130%" in dict(third.headers())[b"x-tollhouse-budget-warning"]
    await gate.aclose()


async def test_a_request_belongs_to_the_period_in_which_it_began(where: str, books: RememberedBooks) -> None:
    gate = limiter(where, books, budget("key", "k1", USD, "day"), budget("tenant", "t1", 2 * USD, "month"))
    late = await reserve(gate, USD, at=MIDNIGHT - 0.001)
    with pytest.raises(BudgetExceeded):
        await reserve(gate, 1, at=MIDNIGHT - 0.001)
    early = await reserve(gate, USD, at=MIDNIGHT)  # another day, and another month too
    await late.settle(10, USD)
    await early.settle(10, USD // 2)
    await spend(gate, USD // 2, at=MIDNIGHT + 1)
    with pytest.raises(BudgetExceeded, match="day's budget"):
        await reserve(gate, 1, at=MIDNIGHT + 1)
    await spend(gate, USD, at=MIDNIGHT + 86_400)  # the month holds 2
    with pytest.raises(BudgetExceeded, match="month's budget"):
        await reserve(gate, 1, at=MIDNIGHT + 2 * 86_400)
    await gate.aclose()


async def test_what_was_spent_before_a_start_counts(where: str, books: RememberedBooks) -> None:
    books.settle(principal(), NOON - 86_400, USD)
    books.settle(principal(key="k2"), NOON, USD)
    books.settle(principal(team="m2", key="k3"), NOON, USD)
    books.settle(principal(), NOON - 31 * 86_400, 50 * USD)  # another month
    gate = limiter(
        where,
        books,
        budget("tenant", "t1", 4 * USD),
        budget("team", "m1", 2 * USD + 1),
        budget("key", "k1", USD, "day"),
    )
    with pytest.raises(BudgetExceeded, match=r"month's budget of \$2\.000000001 that this team"):
        await reserve(gate, USD)
    await spend(gate, USD, principal(team="m2", key="k3"))
    with pytest.raises(BudgetExceeded, match="this tenant"):
        await reserve(gate, 1, principal(team="m2", key="k3"))
    await gate.aclose()


async def test_a_new_or_larger_budget_counts_what_was_spent_under_the_old(where: str, books: RememberedBooks) -> None:
    gate = limiter(where, books, budget("tenant", "t1", USD))
    await spend(gate, USD)
    gate.set_budgets({"t1": (budget("tenant", "t1", 2 * USD),)})
    await spend(gate, USD)
    with pytest.raises(BudgetExceeded):
        await reserve(gate, 1)
    gate.set_budgets({})
    await spend(gate, USD)
    await gate.aclose()


async def test_what_was_spent_while_there_was_no_budget_counts_against_the_next_one(
    where: str, books: RememberedBooks
) -> None:
    limits = budget("tenant", "t1", 3 * USD)
    gates = [limiter(where, books, limits) for _ in range(2 if where else 1)]
    for gate in gates:
        await spend(gate, 1)
        books.settle(principal(), NOON, 1)
        gate.set_budgets({})
    await spend(gates[0], USD)
    books.settle(principal(), NOON, USD)
    for gate in gates:
        gate.set_budgets(by_owner(limits))
        with pytest.raises(BudgetExceeded):
            await reserve(gate, 2 * USD)
    await spend(gates[0], 2 * USD - len(gates))
    for gate in gates:
        await gate.aclose()


async def test_without_the_ledger_nothing_is_guessed(where: str) -> None:
    class Away(RememberedBooks):
        away = True

        async def spent_by_key(self, *asked: Any) -> Any:
            if self.away:
                raise StoreUnavailable("the database is away")
            return await super().spent_by_key(*asked)

    books = Away()
    gate = limiter(where, books, budget("tenant", "t1", USD))
    with pytest.raises(CountsAway) as refused:
        await reserve(gate, 1)
    assert (refused.value.status, refused.value.code) == (503, "limits_unavailable")
    books.away = False
    await spend(gate, USD)
    books.away = True
    with pytest.raises(BudgetExceeded):  # known by now
        await reserve(gate, 1)
    await gate.aclose()


async def test_a_cancelled_reservation_leaves_nothing_behind(where: str, books: RememberedBooks) -> None:
    gate = limiter(where, books, budget("tenant", "t1", 5 * USD))
    await spend(gate, 1)
    for pauses in range(40):
        task = asyncio.create_task(reserve(gate, USD))
        for _ in range(pauses % 8):
            await asyncio.sleep(0)
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(outcome, Ticket):
            await outcome.settle()
    await reserve(gate, 5 * USD - 1)
    await gate.aclose()


async def test_a_crashed_gateways_reservations_come_free(redis_url: str, books: RememberedBooks) -> None:
    crashed = limiter(redis_url, books, budget("tenant", "t1", USD), lease_s=0.6)
    await reserve(crashed, USD)
    living = limiter(redis_url, books, budget("tenant", "t1", USD), lease_s=0.6)
    await asyncio.sleep(1.0)  # longer than the lease: it was renewed
    with pytest.raises(BudgetExceeded, match="Running requests"):
        await reserve(living, USD)
    await crashed.aclose()  # renews no more, and never settles
    await until_admitted(living, USD)
    await living.aclose()


async def until_admitted(gate: Limiter, cost: int, seconds: float = 5.0) -> Ticket:
    async with asyncio.timeout(seconds):
        while True:
            try:
                return await reserve(gate, cost)
            except (BudgetExceeded, CountsAway):
                await asyncio.sleep(0.02)


async def test_a_redis_that_forgot_is_told_again(redis_url: str, books: RememberedBooks) -> None:
    gates = [limiter(redis_url, books, budget("tenant", "t1", 4 * USD)) for _ in range(2)]
    await spend(gates[0], USD)
    books.settle(principal(), NOON, USD)
    held = await reserve(gates[1], USD)
    await flush(redis_url)
    await reserve(gates[0], 1)  # asks the ledger: 1 was spent
    later = await reserve(gates[1], 1)  # sees that Redis is another one, and puts back what its request holds
    await later.settle()
    async with asyncio.timeout(5):
        while (refusal := await why_not(gates[0], 3 * USD - 1)) is None:
            await asyncio.sleep(0.02)
    assert "Running requests" in refusal
    await held.settle()
    await spend(gates[0], 3 * USD - 1)
    for gate in gates:
        await gate.aclose()


async def test_redis_goes_and_comes_back(redis_server: RedisServer, books: RememberedBooks) -> None:
    who = principal()
    gate = limiter(redis_server.url, books, budget("tenant", "t1", 3 * USD))
    before = await reserve(gate, USD)
    redis_server.stop()
    books.settle(who, NOON, USD)
    await before.settle(10, USD)  # no error, and not lost: the ledger has it
    books.settle(who, NOON, USD)
    await spend(gate, USD)  # counted here alone, from the ledger's sum on
    with pytest.raises(BudgetExceeded):
        await reserve(gate, USD + 1)
    redis_server.start()
    async with asyncio.timeout(10):
        while not gate.shared:
            await asyncio.sleep(0.05)
    with pytest.raises(BudgetExceeded):
        await reserve(gate, USD + 1)
    await spend(gate, USD)
    await gate.aclose()


async def test_without_redis_whoever_has_a_limit_is_refused_where_that_is_wanted(
    redis_server: RedisServer, books: RememberedBooks
) -> None:
    gate = limiter(redis_server.url, books, budget("tenant", "t1", 3 * USD), when_redis_is_away="refuse")
    await spend(gate, USD)
    redis_server.stop()
    with pytest.raises(CountsAway, match="Limits can't be checked"):
        await reserve(gate, 1)
    with pytest.raises(CountsAway):
        await gate.admit(principal(), at=NOON)
    await (await gate.admit(principal(tenant="t2", team=None, key="k9"), at=NOON)).settle()  # has no limit at all
    redis_server.start()
    await until_admitted(gate, 1, 10.0)
    await gate.aclose()


async def test_counts_are_raised_to_what_the_ledger_comes_to_know(where: str, books: RememberedBooks) -> None:
    """What another gateway booked for a crashed one, say; never lowered, never doubled."""
    gate = limiter(where, books, budget("tenant", "t1", 3 * USD))
    await spend(gate, USD)
    books.settle(principal(), NOON, USD)
    books.settle(principal(key="k7"), NOON, USD)
    terms = gate._terms_of(principal())
    for _ in range(3):
        gate._counting.spending.look_again(terms, NOON)
    async with asyncio.timeout(5):
        while books.num_asked < 2:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    with pytest.raises(BudgetExceeded):
        await reserve(gate, USD + 1)
    await spend(gate, USD)
    await gate.aclose()


def test_periods_are_utcs() -> None:
    assert period_at("day", MIDNIGHT - 0.001).label == "2026-11-30"
    assert period_at("day", MIDNIGHT).label == "2026-12-01"
    assert period_at("month", MIDNIGHT - 0.001).label == "2026-11"
    month = period_at("month", MIDNIGHT)
    assert (month.label, month.start, month.end) == ("2026-12", MIDNIGHT, MIDNIGHT + 31 * 86_400)
    assert period_at("month", 1_709_164_800.0).end == 1_709_251_200.0  # 29 February 2024
