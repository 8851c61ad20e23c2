"""Tells a client why it is refused and until when: 429 in OpenAI's words, with the headers that its clients read."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime

from gateway.errors import OverloadedError, RateLimitError
from gateway.money import dollars
from gateway.tenants.tally import WINDOW_S, Balance, Standing, Tally
from gateway.tenants.terms import Terms
from gateway.tenants.types import Budget

HeaderPairs = list[tuple[bytes, bytes]]

_NAMES = {
    what: (
        f"x-ratelimit-limit-{what}".encode(),
        f"x-ratelimit-remaining-{what}".encode(),
        f"x-ratelimit-reset-{what}".encode(),
    )
    for what in ("requests", "tokens")
}
DON_T_RETRY = {"x-should-retry": "false"}
WORTH_WAITING_S = 60.0  # for a running request to end, or a bucket to refill; official clients wait no longer


class TokenLimitError(RateLimitError):
    """OpenAI tells by `type` which of the two limits it was."""

    type = "tokens"


class BudgetExceeded(RateLimitError):
    type = "insufficient_quota"
    code = "budget_exceeded"


class CountsAway(OverloadedError):
    """What was used so far is unknown, and the operator rather refuses than guesses."""

    code = "limits_unavailable"

    def __init__(self, message: str) -> None:
        super().__init__(message, headers=_retry_after(1.0))


def refusal(tally: Tally, now: float) -> RateLimitError:
    """`now`: seconds since the epoch."""
    refused = tally.refused
    assert refused is not None
    if isinstance(refused, Balance):
        return _over_budget(refused, now)
    amount, whose = refused.quota.amount, refused.quota.owner.kind
    if refused.what == "slots":
        message = f"Too many requests at once: this {whose} may run {amount} concurrently."
        return RateLimitError(message, code="concurrency_limit_exceeded", headers=_retry_after(1.0))
    wait_s = refused.retry_after_s
    kind = TokenLimitError if refused.what == "tokens" else RateLimitError
    message = f"Rate limit reached: {amount} {refused.what} per minute for this {whose}."
    told = {name.decode(): value.decode() for name, value in rate_headers(tally.standings)}
    headers = _retry_after(wait_s) | told
    return kind(f"{message} Please try again in {_duration(wait_s)}.", headers=headers)


def never_fits(terms: Terms, tokens: int, cost_nanousd: int) -> RateLimitError | None:
    """For a request that is larger than a limit as a whole: waiting would not help."""
    for quota in terms.tokens:
        if tokens > quota.amount:
            limit = f"the {quota.amount} per minute that this {quota.owner.kind} has"
            message = f"The request may use {tokens} tokens, more than {limit}."
            advice = "Lower max_tokens or shorten the prompt."
            return TokenLimitError(f"{message} {advice}", code="tokens_limit_exceeded", headers=DON_T_RETRY)
    for allowance in terms.allowances:
        hard = allowance.hard
        if hard is not None and cost_nanousd > hard.amount_nanousd:
            message = f"The request may cost ${dollars(cost_nanousd)}, more than {_budget(hard)}."
            return BudgetExceeded(f"{message} Lower max_tokens or shorten the prompt.", headers=DON_T_RETRY)
    return None


def rate_headers(standings: Iterable[Standing]) -> HeaderPairs:
    """OpenAI's x-ratelimit-*, of one quota of each kind."""
    found: HeaderPairs = []
    for each in standings:
        limit, remaining, reset = _NAMES[each.what]
        amount, left = each.quota.amount, each.remaining
        found += (
            (limit, b"%d" % amount),
            (remaining, b"%d" % (left if left > 0 else 0)),
            (reset, _duration((amount - left) * WINDOW_S / amount).encode()),
        )
    return found


def warning_header(balances: Iterable[Balance]) -> HeaderPairs:
    """x-tollhouse-budget-warning, where a budget's spending has come to one of its marks."""
    warnings = [
        f"{budget.period} budget of this {budget.owner_kind}: {_percent(balance.spent, budget.amount_nanousd)}% of "
        f"${dollars(budget.amount_nanousd)} spent"
        for balance in balances
        for budget in balance.allowance.budgets
        if budget.warn_percents and 100 * balance.spent >= min(budget.warn_percents) * budget.amount_nanousd
    ]
    return [(b"x-tollhouse-budget-warning", "; ".join(warnings).encode())] if warnings else []


def _over_budget(balance: Balance, now: float) -> BudgetExceeded:
    hard = balance.allowance.hard
    assert hard is not None
    left = hard.amount_nanousd - balance.spent
    may_cost = f"this request may cost ${dollars(balance.wanted)}"
    if balance.wanted <= left:  # it is held by others, which may well use less
        message = f"Running requests hold what is left of {_budget(hard)}, and {may_cost}."
        return BudgetExceeded(f"{message} Please try again when they are done.", headers=_retry_after(1.0))
    ends_at = datetime.fromtimestamp(balance.period.end, UTC)
    message = f"${dollars(max(0, left))} is left of {_budget(hard)}, and {may_cost}."
    wait_s = max(1.0, balance.period.end - now)
    headers = _retry_after(wait_s) if wait_s <= WORTH_WAITING_S else {**_retry_after(wait_s), **DON_T_RETRY}
    return BudgetExceeded(f"{message} It starts anew at {ends_at:%Y-%m-%dT%H:%M:%SZ}.", headers=headers)


def _budget(budget: Budget) -> str:
    return f"the {budget.period}'s budget of ${dollars(budget.amount_nanousd)} that this {budget.owner_kind} has"


def _percent(part: int, whole: int) -> int:
    return 100 * part // whole if whole else 100


def _retry_after(seconds: float) -> dict[str, str]:
    """Whole seconds as HTTP wants them, and the milliseconds that the official clients prefer."""
    return {"retry-after": str(max(1, math.ceil(seconds))), "retry-after-ms": str(max(1, math.ceil(seconds * 1000)))}


def _duration(seconds: float) -> str:
    """As OpenAI writes it: 20ms, 1s, 6m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
