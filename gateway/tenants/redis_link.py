"""The connection to Redis that limits use: scripts run to their end, and its being away is noticed, and ended, here."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from semcache.store.calls import Calls

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = logging.getLogger("tollhouse.limits")
_TIMEOUT_S = 1.0  # a request waits no longer than this for a Redis that does not answer
_PROBE_S = 0.5


class RedisAway(Exception):
    """It does not answer at present."""


class RedisLink:
    """Raises ValueError for a useless URL. `on_return` is called whenever Redis answers again."""

    def __init__(self, url: str) -> None:
        self.on_return: Callable[[], None] = lambda: None
        self._redis = _connect(url)
        self._scripts: dict[str, Any] = {}
        self._calls = Calls()
        self._closed = False
        self.available = True

    async def run(self, script: str, keys: list[str], arguments: list[Any]) -> Any:
        """Raises RedisAway."""
        if not self.available:
            raise RedisAway
        registered = self._scripts.get(script)
        if registered is None:
            registered = self._scripts[script] = self._redis.register_script(script)
        try:
            return await registered(keys=keys, args=arguments)
        except _redis_errors() as error:
            self._lose(error)
            raise RedisAway from error

    async def run_on(self, script: str, keys: list[str], arguments: list[Any]) -> Any:
        """`run`, to its end: whoever is cancelled meanwhile must not tear a connection down."""
        return await self._calls.run(self.run(script, keys, arguments))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Runs to its end, whoever waits for it."""
        return self._calls.spawn(work)

    async def aclose(self) -> None:
        self._closed = True
        await self._calls.stop()
        await self._redis.aclose()

    def _lose(self, error: BaseException) -> None:
        if self.available:
            self.available = False
            log.warning("Redis is away, limits are counted without it: %s", error)
            self.spawn(self._probe())

    async def _probe(self) -> None:
        while not (self.available or self._closed):  # a cancellation alone can get lost in the client's own timeouts
            await asyncio.sleep(_PROBE_S)
            try:
                await self._redis.ping()
            except _redis_errors():
                continue
            self.available = True
            log.info("Redis is back, limits are shared again")
            self.on_return()


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
            decode_responses=True,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),  # a step whose answer is lost may have been counted: twice would be wrong
            protocol=2,  # with 3 the pool hands out connections that were closed while they were idle
        )
    except ValueError as error:
        raise ValueError("store.redis_url is not a Redis URL; write redis://host:6379/0") from error


def _redis_errors() -> tuple[type[BaseException], ...]:
    from redis.exceptions import RedisError

    return RedisError, OSError, TimeoutError
