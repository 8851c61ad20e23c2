"""TimeLimit keeps asyncio.timeout's promises."""

import asyncio
import time

import pytest

from gateway.time_limit import TimeLimit

pytestmark = pytest.mark.anyio
LONG_S = 60.0


async def test_what_takes_too_long_is_cancelled_and_told():
    limit = TimeLimit(0.01)
    with pytest.raises(TimeoutError), limit:
        await asyncio.sleep(LONG_S)
    assert limit.expired
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0  # what follows runs undisturbed


async def test_what_is_done_in_time_stays_as_it_is():
    with TimeLimit(LONG_S) as limit:
        assert await asyncio.sleep(0, "done") == "done"
    assert not limit.expired


async def test_a_cancellation_from_outside_stays_one():
    entered = asyncio.Event()

    async def work():
        with TimeLimit(LONG_S):
            entered.set()
            await asyncio.sleep(LONG_S)

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_from_outside_at_the_very_end_is_not_swallowed():
    async def work():
        with TimeLimit(0.001):
            await asyncio.sleep(LONG_S)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)  # it waits now
    asyncio.get_running_loop().call_later(0.001, task.cancel)
    time.sleep(0.02)  # both ring in one turn of the loop
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_another_error_passes():
    with pytest.raises(ZeroDivisionError), TimeLimit(LONG_S):
        _ = 1 / 0


async def wait_with_less(seconds):
    with TimeLimit(LONG_S) as limit:
        limit.move_to(asyncio.get_running_loop().time() + seconds)
        await asyncio.sleep(LONG_S)


async def test_the_end_can_be_moved():
    with pytest.raises(TimeoutError):
        await wait_with_less(0.01)


async def test_the_inner_of_two_limits_leaves_the_outer_one_alone():
    with TimeLimit(LONG_S) as outer:
        with pytest.raises(TimeoutError), TimeLimit(0.01):
            await asyncio.sleep(LONG_S)
        await asyncio.sleep(0)
    assert not outer.expired


@pytest.mark.anyio
async def test_an_unarmed_limit_ends_nothing_until_it_is_armed() -> None:
    with TimeLimit(0.01).unarmed() as limit:
        await asyncio.sleep(0.05)
    assert not limit.expired
    with pytest.raises(TimeoutError), TimeLimit(0.01).unarmed() as limit:  # noqa: PT012
        await asyncio.sleep(0.05)
        limit.arm()
        await asyncio.sleep(LONG_S)
    assert limit.expired
