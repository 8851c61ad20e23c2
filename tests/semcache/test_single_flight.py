import asyncio
from collections.abc import Callable

import pytest

from semcache.single_flight import SingleFlight
from semcache.types import Question, StoredAnswer

pytestmark = pytest.mark.anyio


class Upstream:
    """Counts its calls; each takes a moment."""

    def __init__(self, flights: SingleFlight, answer: StoredAnswer | None) -> None:
        self.flights, self.answer = flights, answer
        self.num_calls = 0
        self.fail_first = False

    async def ask(self, key: bytes = b"k") -> StoredAnswer | None:
        async with self.flights.join(key) as flight:
            if not flight.leads:
                return flight.answer
            self.num_calls += 1
            await asyncio.sleep(0.01)
            if self.fail_first and self.num_calls == 1:
                raise RuntimeError("upstream")
            flight.land(self.answer)
            return self.answer


@pytest.fixture
def answer(ask: Callable[..., Question], reply: Callable[..., StoredAnswer]) -> StoredAnswer:
    return reply(ask("q"))


async def test_identical_concurrent_misses_are_one_call(answer: StoredAnswer) -> None:
    upstream = Upstream(SingleFlight(), answer)
    assert await asyncio.gather(*(upstream.ask() for _ in range(20))) == [answer] * 20
    assert upstream.num_calls == 1
    assert len(upstream.flights) == 0


async def test_different_keys_do_not_wait_for_each_other(answer: StoredAnswer) -> None:
    upstream = Upstream(SingleFlight(), answer)
    await asyncio.gather(upstream.ask(b"a"), upstream.ask(b"b"))
    assert upstream.num_calls == 2


async def test_a_later_question_is_a_new_flight(answer: StoredAnswer) -> None:
    upstream = Upstream(SingleFlight(), answer)
    await upstream.ask()
    await upstream.ask()
    assert upstream.num_calls == 2


async def test_when_the_leader_fails_the_next_one_leads(answer: StoredAnswer) -> None:
    upstream = Upstream(SingleFlight(), answer)
    upstream.fail_first = True
    results = await asyncio.gather(*(upstream.ask() for _ in range(5)), return_exceptions=True)
    assert isinstance(results[0], RuntimeError)
    assert results[1:] == [answer] * 4
    assert upstream.num_calls == 2


async def test_an_answer_that_may_not_be_shared_makes_everybody_ask(answer: StoredAnswer) -> None:
    upstream = Upstream(SingleFlight(), None)
    await asyncio.gather(*(upstream.ask() for _ in range(4)))
    assert upstream.num_calls == 4
    assert len(upstream.flights) == 0


async def test_when_the_leaders_client_leaves_the_next_one_leads(answer: StoredAnswer) -> None:
    upstream = Upstream(SingleFlight(), answer)
    tasks = [asyncio.create_task(upstream.ask()) for _ in range(4)]
    await asyncio.sleep(0.002)
    tasks[0].cancel()
    assert await asyncio.gather(*tasks[1:]) == [answer] * 3
    assert tasks[0].cancelled()
    assert upstream.num_calls == 2


async def test_a_follower_that_leaves_takes_nobody_along(answer: StoredAnswer) -> None:
    upstream = Upstream(SingleFlight(), answer)
    tasks = [asyncio.create_task(upstream.ask()) for _ in range(4)]
    await asyncio.sleep(0.002)
    tasks[2].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [result == answer for result in results] == [True, True, False, True]
    assert upstream.num_calls == 1
    assert len(upstream.flights) == 0


async def test_a_follower_cancelled_in_the_moment_it_became_leader_hands_over(answer: StoredAnswer) -> None:
    flights = SingleFlight()
    released = asyncio.Event()

    async def lead() -> None:
        async with flights.join(b"k"):
            await released.wait()  # and lands nothing
        first.cancel()  # in the same step as the hand-over: `first` has not run since it became the leader

    async def follow() -> bool:
        async with flights.join(b"k") as flight:
            flight.land(answer)
            return flight.leads

    leader = asyncio.create_task(lead())
    await asyncio.sleep(0)  # it leads
    first, second = asyncio.create_task(follow()), asyncio.create_task(follow())
    await asyncio.sleep(0)
    assert flights.num_followers(b"k") == 2
    released.set()
    assert await asyncio.wait_for(second, 1)
    with pytest.raises(asyncio.CancelledError):
        await first
    await leader
    assert len(flights) == 0


async def test_a_follower_cancelled_in_the_moment_its_leader_leaves_is_cancelled_and_nothing_else() -> None:
    flights = SingleFlight()
    released = asyncio.Event()

    async def lead() -> None:
        async with flights.join(b"k"):
            await released.wait()
            follower.cancel()  # before the hand-over, which finds it cancelled and passes it over

    async def follow() -> None:
        async with flights.join(b"k"):
            pass

    leader = asyncio.create_task(lead())
    await asyncio.sleep(0)  # it leads
    follower = asyncio.create_task(follow())
    await asyncio.sleep(0)
    assert flights.num_followers(b"k") == 1
    released.set()
    with pytest.raises(asyncio.CancelledError):
        await follower
    await leader
    assert len(flights) == 0


async def test_all_leaving_leaves_nothing_behind(answer: StoredAnswer) -> None:
    upstream = Upstream(SingleFlight(), answer)
    tasks = [asyncio.create_task(upstream.ask()) for _ in range(4)]
    await asyncio.sleep(0.002)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(upstream.flights) == 0
