"""The exact tier that several processes share, in Redis or Valkey. Knows keys and bytes, nothing of what they mean.

Redis going away is survived: a call gives up after `timeout_s`, and for a second after a failure none is made at all,
so requests go on as if nothing were cached. It is logged once when Redis goes and once when it is back.
"""

import logging
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from semcache.errors import StoreError
from semcache.store.calls import Calls

logger = logging.getLogger(__name__)

PREFIX = b"tollhouse:exact:1:"  # the number changes with the encoding of the values
REST_S = 1.0
SCANNED = 500  # keys at a time
_GLOB = re.compile(rb"[*?\[\]\\^-]")  # what has a meaning in a pattern


class RedisExactStore:
    """get, put and delete by exact key; see semcache.types.ExactStore."""

    def __init__(self, url: str, ttl_s: float, *, timeout_s: float = 0.1) -> None:
        """Connects at the first call. Raises StoreError: an URL that can't be understood, or redis-py is missing."""
        if ttl_s <= 0:
            raise StoreError(f"ttl_s must be above 0, not {ttl_s}")
        self.ttl_s = ttl_s
        self._redis = _connect(url, timeout_s)
        self._calls = Calls()
        self._away = False
        self._rests_until = 0.0

    @property
    def available(self) -> bool:
        """False from a failure until a call succeeds again."""
        return not self._away

    async def get(self, key: bytes) -> bytes | None:
        value: bytes | None = await self._try(lambda: self._redis.get(PREFIX + key))
        return value

    async def put(self, key: bytes, value: bytes) -> None:
        await self._try(lambda: self._redis.set(PREFIX + key, value, px=max(1, int(self.ttl_s * 1000))))

    async def delete(self, key: bytes) -> None:
        await self._try(lambda: self._redis.delete(PREFIX + key))

    async def sweep(self, prefix: bytes, is_dead: Callable[[bytes], bool]) -> int:
        """Deletes what is stored under keys that begin so, if `is_dead` says so of its value. Returns how many."""
        pattern = _GLOB.sub(rb"\\\g<0>", PREFIX + prefix) + b"*"
        num_gone, cursor = 0, 0
        while True:
            found = await self._try(partial(self._redis.scan, cursor, pattern, SCANNED))
            if found is None:
                return num_gone  # it is away
            cursor, keys = found
            num_gone += await self._delete_dead(keys, is_dead) if keys else 0
            if not cursor:
                return num_gone

    async def _delete_dead(self, keys: list[bytes], is_dead: Callable[[bytes], bool]) -> int:
        values = await self._try(partial(self._redis.mget, keys)) or [None] * len(keys)
        dead = [key for key, raw in zip(keys, values, strict=True) if raw is not None and is_dead(raw)]
        return await self._try(partial(self._redis.delete, *dead)) or 0 if dead else 0

    async def aclose(self) -> None:
        await self._calls.wait()
        await self._redis.aclose()

    async def _try(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """The call's result, or None while Redis is away."""
        if self._away and time.monotonic() < self._rests_until:
            return None
        return await self._calls.run(self._noting(call))

    async def _noting(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """The same, with its being away or back noted."""
        from redis.exceptions import RedisError

        try:
            result = await call()
        except (RedisError, OSError) as error:
            self._rests_until = time.monotonic() + REST_S
            if not self._away:
                self._away = True
                logger.warning("Redis is away (%s): the exact cache is this process's own until it is back", error)
            return None
        if self._away:
            self._away = False
            logger.warning("Redis is back: the exact cache is shared again")
        return result


def _connect(url: str, timeout_s: float) -> Any:
    try:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError as error:
        raise StoreError("a shared cache needs redis-py: pip install 'tollhouse[redis]'") from error
    try:
        return Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 1),  # one: a pooled connection may have died unnoticed while Redis restarted
        )
    except ValueError as error:
        raise StoreError(f"not a Redis URL: {error}") from error
