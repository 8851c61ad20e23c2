"""One file of the journal, written through a memory map: what is in it outlives a process that is killed.

A store to memory costs no system call, and no other thread gets its turn in the middle of a request. The file gets its
blocks ahead of what is written, for a hole that can't be filled would kill the process that writes to it (file systems
that copy on write, like btrfs and ZFS, promise no such thing). Its end is zeros, which are no frame.
"""

import mmap
import os
from pathlib import Path

STEP = 64 * 1024  # bytes that the file grows by, and as many are mapped: what was written is the page cache's


class Segment:
    """Raises OSError where the disk has no room, and has then written nothing."""

    __slots__ = ("_begin", "_end", "_memory", "fd", "num_holds", "path", "size", "unread_from")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self.size = 0  # of what was written
        self.num_holds = 0
        self.unread_from: int | None = None  # from here on, settled records are in no memory and have to be read again
        try:
            self._map(0, STEP)
        except OSError:
            os.close(self.fd)
            path.unlink()
            raise

    def append(self, frame: bytes) -> None:
        end = self.size + len(frame)
        if end > self._end:
            begin = self.size - self.size % mmap.ALLOCATIONGRANULARITY
            self._map(begin, max(end - begin, STEP))
        self._memory[self.size - self._begin : end - self._begin] = frame
        self.size = end

    def finish(self) -> None:
        """Nothing more will be written. The file's descriptor stays open, for its last sync."""
        self._memory.close()
        os.ftruncate(self.fd, self.size)

    def _map(self, begin: int, length: int) -> None:
        os.posix_fallocate(self.fd, begin, length)
        self._memory = mmap.mmap(self.fd, length, offset=begin)
        self._begin, self._end = begin, begin + length
