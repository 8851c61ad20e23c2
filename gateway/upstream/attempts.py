"""One request against its candidates: retry elsewhere, fall back, leave the broken ones alone, under one deadline.

Nothing has reached the client while this runs, so every failure can still be mended; afterwards none is. Knows
backends, not HTTP.
"""

import asyncio
import random
from collections.abc import Callable, Sequence

from gateway.errors import OverloadedError, UpstreamError, UpstreamTimeout
from gateway.time_limit import TimeLimit
from gateway.upstream.attempt import Caller
from gateway.upstream.deployment import AttemptObserver, Deployment, Served
from gateway.upstream.fleet import Fleet
from gateway.upstream.types import Outbound
from gateway.upstream.verdict import MAX_RETRY_AFTER_S, Failed

__all__ = ["AttemptObserver", "Deployment", "Fleet", "Served", "run"]

FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 1.0
USUAL_TOTAL_S = 600.0
MARGIN_S = 1.0  # a backend's own limit comes first: it says more, and counts against the deployment


async def run(
    fleets: Sequence[Fleet],
    outbound_for: Callable[[Deployment], Outbound],
    observer: AttemptObserver,
    *,
    stream: bool = False,
    deadline_s: float | None = None,
) -> Served:
    """Tries the candidates in order, each at its deployments, and returns the first answer: a stream's, at its first
    token. By default all together have as long as the most patient of them, at least ten minutes.

    Raises UpstreamError, or UpstreamTimeout if the last one took too long, or the ApiError of a backend of our own that
    was the last to refuse. Cancelling it cancels the upstream request.
    """
    assert fleets
    if deadline_s is None:
        deadline_s = max([USUAL_TOTAL_S, *[fleet.total_s for fleet in fleets]]) + MARGIN_S
    limit = TimeLimit(deadline_s)
    caller = Caller(outbound_for, observer, limit)
    try:
        with limit.unarmed():
            return await _serve(fleets, caller, stream)
    except TimeoutError:
        if not limit.expired:
            raise
        raise UpstreamTimeout(f"No answer within {deadline_s:g} s. Tried: {caller.summary()}") from None


async def _serve(fleets: Sequence[Fleet], caller: Caller, stream: bool) -> Served:
    last: Failed | None = None
    for fleet in fleets:
        outcome = await _try(fleet, caller, stream)
        if isinstance(outcome, Served):
            return outcome
        last = outcome or last
    if last is None:  # a sure refusal helps nobody: the one that may be back soonest is tried
        soonest = min((fleet.soonest for fleet in fleets), key=lambda each: each.breaker.open_until)
        outcome = await caller.attempt(soonest)
        if isinstance(outcome, Served):
            return outcome
        last = outcome
    return _refusal(last, caller)


async def _try(fleet: Fleet, caller: Caller, stream: bool) -> Served | Failed | None:
    """One candidate: each of its deployments once, then the last one's retries. None: all are left alone."""
    outcome: Failed | None = None
    tried: list[Deployment] = []
    while (deployment := fleet.pick(tried, stream=stream)) is not None:
        tried.append(deployment)
        answer = await caller.attempt(deployment)
        if isinstance(answer, Served):
            return answer
        outcome = answer
    for retry in range(fleet.max_retries + 1 - len(tried)):
        if outcome is None or not await _wait_for(tried[-1], outcome, retry, caller.limit.when):
            break
        answer = await caller.attempt(tried[-1])
        if isinstance(answer, Served):
            return answer
        outcome = answer
    return outcome


async def _wait_for(deployment: Deployment, failed: Failed, retry: int, until: float) -> bool:
    """Until it may be tried again; False where that makes no sense, or is longer than anyone waits."""
    asked_s = failed.retry_after_s or 0.0
    wait_s = max(_backoff(retry), asked_s)
    if not failed.retryable or asked_s > MAX_RETRY_AFTER_S or deployment.breaker.open_for_s > wait_s:
        return False
    if asyncio.get_running_loop().time() + wait_s >= until:
        return False
    await asyncio.sleep(wait_s)
    return True


def _refusal(failed: Failed, caller: Caller) -> Served:
    """The last candidate's own, if it may pass as it came."""
    if failed.reply is not None:
        return caller.as_it_came(failed.reply)
    if failed.error is not None:
        raise failed.error
    message = f"No candidate could answer. Tried: {caller.summary()}"
    if failed.crowded:
        raise OverloadedError(message, headers={"retry-after": "1"})
    raise (UpstreamTimeout if failed.timed_out else UpstreamError)(message)


def _backoff(retry: int) -> float:
    """Doubling, with jitter so that retries of many requests spread out."""
    longest: float = min(FIRST_BACKOFF_S * 2**retry, MAX_BACKOFF_S)
    return longest * random.uniform(0.5, 1.0)
