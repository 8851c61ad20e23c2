"""Takes over an edited config file while the gateway runs; a faulty edit changes nothing and is said once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway.config import Config, load
from gateway.config_check import ConfigError

log = logging.getLogger("tollhouse.config")

POLL_S = 0.5
AT_START_ONLY = ("server", "store", "embedding", "engine")


class ConfigWatcher:
    """Polls the file's identity (inode, size, mtime): good on every file system, and for editors that replace files."""

    def __init__(self, path: Path, current: Config, apply: Callable[[Config], Awaitable[None]]) -> None:
        self._path = path
        self._current = current
        self._apply = apply
        self._seen: tuple[int, int, int] | None = self._identity()
        self.last_error: str | None = None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            await self.check()

    async def check(self) -> bool:
        """Applies the file if it changed and is good; True when it was applied. Never raises: there is a next time."""
        identity = self._identity()
        if identity == self._seen:
            return False
        self._seen = identity
        try:
            config = load(self._path)
            if config.hash == self._current.hash:
                self.last_error = None  # a bad edit was taken back
                return False
            await self._apply(config)
        except ConfigError as error:
            self._refuse("; ".join(error.faults))
            return False
        except Exception as error:  # the database is away, say: the file is good, and tried again
            self._seen = None
            self._refuse(f"{type(error).__name__}: {error}")
            return False
        self._say_what_waits(config)
        self._current, self.last_error = config, None
        log.info("config.toml taken over, hash %s", config.hash)
        return True

    def _refuse(self, why: str) -> None:
        """Said once, however often it is tried."""
        if why != self.last_error:
            log.error("config.toml was edited but not taken over, the old one stays: %s", why)
        self.last_error = why

    def _say_what_waits(self, config: Config) -> None:
        for section in AT_START_ONLY:
            if getattr(config, section) != getattr(self._current, section):
                log.warning("config.toml: changes under [%s] take effect at the next start", section)

    def _identity(self) -> tuple[int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_size, stat.st_mtime_ns
