"""Whether a process keeps its entries in a file: it does where it may, and only one may have the file at a time."""

import asyncio
import logging
from pathlib import Path

from semcache.errors import StoreError
from semcache.store.cache_file import CacheFile
from semcache.store.write_behind import WriteBehind

log = logging.getLogger(__name__)


async def open_file(path: Path, *, wanted: bool) -> WriteBehind | None:
    """The file, started; None where it is not wanted, in which case it is removed, or where it can't be had."""
    file = CacheFile(path)
    try:
        if not wanted:
            await asyncio.to_thread(file.discard)
            return None
        behind = WriteBehind(file)
        await behind.start()
    except StoreError as error:
        log.warning("the cache is kept in memory alone: %s", error)
        return None
    return behind
