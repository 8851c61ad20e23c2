"""The same limits counted in Redis, for gateways that share tenants. One atomic Lua script for each step.

A slot is a lease that its gateway renews: what a crashed gateway held comes free by itself. Redis being away is this
module's to notice and to end (`available`), and the Limiter's to bridge.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gateway.tenants.local_counts import Standing

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = logging.getLogger("tollhouse.limits")
_TIMEOUT_S = 0.5  # a request waits no longer than this for a Redis that does not answer
_PROBE_S = 0.5
_BATCH = 500  # leases renewed in one call

_BUCKET = """
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local function level(key, limit)
  local kept = redis.call('HMGET', key, 'level', 'at')
  if not kept[1] then return limit end
  return math.min(limit, tonumber(kept[1]) + math.max(0, now - tonumber(kept[2])) * limit / 60000)
end
local function keep(key, limit, amount)
  redis.call('HSET', key, 'level', string.format('%.6f', amount), 'at', string.format('%.3f', now))
  -- a bucket that would be full again is as good as none
  redis.call('PEXPIRE', key, math.ceil((limit - amount) * 60000 / limit) + 1000)
end
"""

# KEYS requests, slots; ARGV requests_limit, slots_limit, ticket, lease_ms -> admitted, requests left, slots taken
_ADMIT = (
    _BUCKET
    + """
local requests_limit, slots_limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local left, taken = -1, 0
if slots_limit > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  taken = redis.call('ZCARD', KEYS[2])
  if taken >= slots_limit then return {0, '-1', taken} end
end
if requests_limit > 0 then
  left = level(KEYS[1], requests_limit)
  if left < 1 then return {0, tostring(left), taken} end
  left = left - 1
  keep(KEYS[1], requests_limit, left)
end
if slots_limit > 0 then
  redis.call('ZADD', KEYS[2], now + ARGV[4], ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[4] * 2)
end
return {1, tostring(left), taken}
"""
)

# KEYS tokens; ARGV limit, tokens -> admitted, tokens left
_RESERVE = (
    _BUCKET
    + """
local limit, wanted = tonumber(ARGV[1]), tonumber(ARGV[2])
local left = level(KEYS[1], limit)
if wanted > left then return {0, tostring(left)} end
keep(KEYS[1], limit, left - wanted)
return {1, tostring(left - wanted)}
"""
)

# KEYS tokens, slots; ARGV limit, tokens to give back, ticket
_SETTLE = (
    _BUCKET
    + """
local limit = tonumber(ARGV[1])
if limit > 0 then keep(KEYS[1], limit, math.min(limit, level(KEYS[1], limit) + tonumber(ARGV[2]))) end
redis.call('ZREM', KEYS[2], ARGV[3])
return 1
"""
)

# KEYS slots; ARGV lease_ms, tickets...
_RENEW = """
local time = redis.call('TIME')
local until_ms = time[1] * 1000 + time[2] / 1000 + ARGV[1]
for index = 2, #ARGV do redis.call('ZADD', KEYS[1], until_ms, ARGV[index]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1] * 2)
return 1
"""


class RedisAway(Exception):
    """Count here instead, for now."""


class SharedCounts:
    def __init__(self, url: str, lease_s: float = 60.0) -> None:
        self._redis = _connect(url)
        self._lease_ms = int(lease_s * 1000)
        self._scripts = {text: self._redis.register_script(text) for text in (_ADMIT, _RESERVE, _SETTLE, _RENEW)}
        self._leases: dict[str, str] = {}  # ticket -> tenant
        self._tasks: set[asyncio.Task[Any]] = set()
        self._renewing: asyncio.Task[None] | None = None
        self.available = True

    async def admit(
        self, tenant_id: str, ticket: str, requests_limit: int, slots_limit: int
    ) -> tuple[Standing | None, Standing | None]:
        """As LocalCounts.admit. Raises RedisAway."""
        keys = [_key(tenant_id, "requests"), _key(tenant_id, "slots")]
        step = self._spawn(self._run(_ADMIT, keys, [requests_limit, slots_limit, ticket, self._lease_ms]))
        try:
            admitted, left, taken = await asyncio.shield(step)
        except asyncio.CancelledError:  # it is counted all the same: so undo it afterwards
            step.add_done_callback(lambda _: self._spawn(self._leave(tenant_id, ticket)))
            raise
        slots_free = slots_limit == 0 or taken < slots_limit
        slots = Standing(slots_free, slots_limit, float(slots_limit - taken), 1.0) if slots_limit else None
        requests: Standing | None = None
        if requests_limit and slots_free:
            requests = Standing(bool(admitted), requests_limit, float(left), 1.0)
        if admitted and slots_limit:
            self._leases[ticket] = tenant_id
            self._keep_renewing()
        return requests, slots

    async def reserve(self, tenant_id: str, limit: int, tokens: float) -> Standing:
        """As LocalCounts.reserve. Raises RedisAway."""
        step = self._spawn(self._run(_RESERVE, [_key(tenant_id, "tokens")], [limit, tokens]))
        admitted, left = await asyncio.shield(step)  # a cancelled client must not tear a connection down
        return Standing(bool(admitted), limit, float(left), tokens)

    async def settle(self, tenant_id: str, ticket: str, limit: int, give_back: float) -> None:
        """Gives tokens back and leaves the slot. Raises RedisAway; lease and bucket then heal by themselves."""
        self.forget(ticket)
        await self._run(_SETTLE, [_key(tenant_id, "tokens"), _key(tenant_id, "slots")], [limit, give_back, ticket])

    def forget(self, ticket: str) -> None:
        """Renews its lease no more."""
        self._leases.pop(ticket, None)

    async def _leave(self, tenant_id: str, ticket: str) -> None:
        with suppress(RedisAway):  # the lease ends by itself then
            await self.settle(tenant_id, ticket, 0, 0)

    async def aclose(self) -> None:
        tasks = [*self._tasks, *([self._renewing] if self._renewing else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._redis.aclose()

    async def _run(self, script: str, keys: list[str], arguments: list[Any]) -> Any:
        if not self.available:
            raise RedisAway
        try:
            return await self._scripts[script](keys=keys, args=arguments)
        except _redis_errors() as error:
            self._lose(error)
            raise RedisAway from error

    def _lose(self, error: BaseException) -> None:
        if self.available:
            self.available = False
            log.warning("Redis is away, limits are counted in this process alone: %s", error)
            self._spawn(self._probe())

    async def _probe(self) -> None:
        while not self.available:
            await asyncio.sleep(_PROBE_S)
            try:
                await self._redis.ping()
            except _redis_errors():
                continue
            self.available = True
            log.info("Redis is back, limits are shared again")

    def _keep_renewing(self) -> None:
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew_leases(), name="renew concurrency leases")

    async def _renew_leases(self) -> None:
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            by_tenant: dict[str, list[str]] = {}
            for ticket, tenant_id in self._leases.items():
                by_tenant.setdefault(tenant_id, []).append(ticket)
            for tenant_id, tickets in by_tenant.items():
                for start in range(0, len(tickets), _BATCH):
                    held = [ticket for ticket in tickets[start : start + _BATCH] if ticket in self._leases]
                    try:
                        await self._run(_RENEW, [_key(tenant_id, "slots")], [self._lease_ms, *held])
                    except RedisAway:
                        break  # tried again next time

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it; when nobody did any more, it is of no interest


def _key(tenant_id: str, what: str) -> str:
    return f"tollhouse:limits:{{{tenant_id}}}:{what}"  # the braces keep a tenant on one node of a cluster


def _connect(url: str) -> "Redis":
    try:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError as error:
        raise ValueError("store.redis_url needs the package redis: pip install 'tollhouse[redis]'") from error
    try:
        return Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            retry=Retry(NoBackoff(), 1),  # once more at once: an idle connection may have been closed
        )
    except ValueError as error:
        raise ValueError("store.redis_url is not a Redis URL; write redis://host:6379/0") from error


def _redis_errors() -> tuple[type[BaseException], ...]:
    from redis.exceptions import RedisError

    return RedisError, OSError, TimeoutError
