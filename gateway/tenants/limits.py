"""What a tenant may do per minute and at once. Counted in this process, or in Redis when gateways share tenants.

The order of a request: `admit` counts it and takes its concurrency slot, `reserve` takes the tokens of the worst case,
`settle` says how many it really used (0 on a hit or an error) and leaves the slot. A refused request that was admitted
stays counted, as with OpenAI.
"""

import math

from gateway.errors import RateLimitError
from gateway.ids import new_id
from gateway.tenants.local_counts import LocalCounts, Standing
from gateway.tenants.shared_counts import RedisAway, SharedCounts
from gateway.tenants.types import Limits, Principal


class TokenLimitError(RateLimitError):
    """OpenAI tells by `type` which of the two limits it was."""

    type = "tokens"


class Ticket:
    """One admitted request. This class itself is the ticket of a tenant without limits."""

    __slots__ = ()

    async def reserve(self, tokens: int) -> None:
        """The tokens that the request may use at most; again with a larger number adds to it. Raises RateLimitError."""

    async def settle(self, tokens: int = 0) -> None:
        """The tokens it used in the end. May be called more than once; the first call counts."""

    def headers(self) -> dict[str, str]:
        """OpenAI's x-ratelimit-* headers, for the limits that the tenant has."""
        return {}


_UNLIMITED = Ticket()


class _Counted(Ticket):
    __slots__ = (
        "_id",
        "_local",
        "_requests",
        "_reserved",
        "_settled",
        "_shared",
        "_slot",
        "_tenant_id",
        "_tokens",
        "_tokens_limit",
    )

    def __init__(self, tenant_id: str, tokens_limit: int, local: LocalCounts) -> None:
        self._tenant_id = tenant_id
        self._tokens_limit = tokens_limit
        self._local = local
        self._shared: SharedCounts | None = None  # where it was admitted, there it is settled
        self._id = ""
        self._slot = False
        self._requests: Standing | None = None
        self._tokens: Standing | None = None
        self._reserved = 0
        self._settled = False

    def admit_here(self, requests_limit: int, slots_limit: int) -> None:
        requests, slots = self._local.admit(self._tenant_id, requests_limit, slots_limit)
        self._requests = requests
        self._refuse_if_over(requests, slots)
        self._slot = slots is not None

    async def admit_shared(self, shared: SharedCounts, requests_limit: int, slots_limit: int) -> None:
        """Raises RedisAway."""
        self._id = new_id()
        requests, slots = await shared.admit(self._tenant_id, self._id, requests_limit, slots_limit)
        self._requests = requests
        self._shared = shared
        self._refuse_if_over(requests, slots)
        self._slot = slots is not None

    def _refuse_if_over(self, requests: Standing | None, slots: Standing | None) -> None:
        if slots is not None and not slots.admitted:
            message = f"Too many requests at once: this tenant may run {slots.limit} concurrently."
            raise RateLimitError(message, code="concurrency_limit_exceeded", headers=_retry_after(1.0))
        if requests is not None and not requests.admitted:
            raise self._refusal("requests", requests)

    async def reserve(self, tokens: int) -> None:
        if not self._tokens_limit or tokens <= self._reserved:
            return
        if tokens > self._tokens_limit:
            limit = f"the {self._tokens_limit} per minute that this tenant has"
            message = f"The request may use {tokens} tokens, more than {limit}. Lower max_tokens or shorten the prompt."
            raise TokenLimitError(message, code="tokens_limit_exceeded", headers={"x-should-retry": "false"})
        before, self._reserved = self._reserved, tokens  # at once: if we are cancelled in between, settle knows
        standing = await self._take_shared(tokens - before)
        if standing is None:
            before = 0 if self._leave_redis() else before
            standing = self._local.reserve(self._tenant_id, self._tokens_limit, tokens - before)
        self._tokens = standing
        if not standing.admitted:
            self._reserved = before
            raise self._refusal("tokens", standing)

    async def _take_shared(self, tokens: int) -> Standing | None:
        """None: to be counted in this process."""
        if self._shared is None:
            return None
        try:
            return await self._shared.reserve(self._tenant_id, self._tokens_limit, tokens)
        except RedisAway:
            return None

    def _leave_redis(self) -> bool:
        """What was counted there is given up: its lease ends and its bucket refills. True if there was anything."""
        shared, self._shared = self._shared, None
        self._slot = self._slot and shared is None
        if shared is not None:
            shared.forget(self._id)
        return shared is not None

    async def settle(self, tokens: int = 0) -> None:
        if self._settled:
            return
        self._settled = True
        give_back = self._reserved - tokens
        if self._shared is not None:
            if self._slot or (self._tokens_limit and give_back):
                try:
                    await self._shared.settle(self._tenant_id, self._id, self._tokens_limit, give_back)
                except RedisAway:
                    return  # the lease ends and the bucket refills by themselves
            return
        if self._tokens_limit and give_back:
            self._local.give_back(self._tenant_id, self._tokens_limit, give_back)
        if self._slot:
            self._local.leave(self._tenant_id)

    def headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for what, standing in (("requests", self._requests), ("tokens", self._tokens)):
            if standing is not None:
                found[f"x-ratelimit-limit-{what}"] = str(standing.limit)
                found[f"x-ratelimit-remaining-{what}"] = str(max(0, math.floor(standing.remaining)))
                found[f"x-ratelimit-reset-{what}"] = _duration(standing.reset_s)
        return found

    def _refusal(self, what: str, standing: Standing) -> RateLimitError:
        wait_s = standing.retry_after_s
        message = f"Rate limit reached: {standing.limit} {what} per minute. Please try again in {_duration(wait_s)}."
        kind = TokenLimitError if what == "tokens" else RateLimitError
        return kind(message, headers={**_retry_after(wait_s), **self.headers()})


class Limiter:
    """`defaults` are for tenants that name no limit of their own. Raises ValueError for a useless Redis URL."""

    def __init__(self, defaults: Limits, redis_url: str = "", *, lease_s: float = 60.0) -> None:
        self._defaults = defaults
        self._local = LocalCounts()
        self._shared = SharedCounts(redis_url, lease_s) if redis_url else None

    def set_defaults(self, defaults: Limits) -> None:
        """After a change of the config. Allowances keep what was used of them."""
        self._defaults = defaults

    @property
    def shared(self) -> bool:
        """Whether limits are counted in Redis at this moment."""
        return self._shared is not None and self._shared.available

    def admit_nowait(self, principal: Principal) -> Ticket | None:
        """`admit` where nothing has to be asked over the network; None where it has. Raises RateLimitError."""
        requests, tokens, slots = self._limits(principal.tenant.limits)
        if not (requests or tokens or slots):
            return _UNLIMITED
        if self._shared is not None and self._shared.available:
            return None
        ticket = _Counted(principal.tenant.id, tokens, self._local)
        ticket.admit_here(requests, slots)
        return ticket

    async def admit(self, principal: Principal) -> Ticket:
        """Counts the request and takes its slot. Raises RateLimitError, and has then taken nothing."""
        ticket = self.admit_nowait(principal)
        if ticket is not None:
            return ticket
        assert self._shared is not None
        requests, tokens, slots = self._limits(principal.tenant.limits)
        counted = _Counted(principal.tenant.id, tokens, self._local)
        try:
            await counted.admit_shared(self._shared, requests, slots)
        except RedisAway:
            counted = _Counted(principal.tenant.id, tokens, self._local)
            counted.admit_here(requests, slots)
        return counted

    async def aclose(self) -> None:
        if self._shared is not None:
            await self._shared.aclose()

    def _limits(self, own: Limits) -> tuple[int, int, int]:
        """0 stands for none. A tenant's own 0 lifts the default."""
        given, requests = self._defaults, own.requests_per_minute
        tokens, slots = own.tokens_per_minute, own.concurrent_requests
        return (
            (given.requests_per_minute if requests is None else requests) or 0,
            (given.tokens_per_minute if tokens is None else tokens) or 0,
            (given.concurrent_requests if slots is None else slots) or 0,
        )


def _retry_after(seconds: float) -> dict[str, str]:
    """Whole seconds as HTTP wants them, and the milliseconds that the official clients prefer."""
    return {"retry-after": str(max(1, math.ceil(seconds))), "retry-after-ms": str(max(1, math.ceil(seconds * 1000)))}


def _duration(seconds: float) -> str:
    """As OpenAI writes it: 20ms, 1s, 6m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
