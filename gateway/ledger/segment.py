"""One file of the journal, written through a memory map: what is in it outlives a process that is killed.

A store to memory costs no system call, and no other thread gets its turn in the middle of a request. The file gets its
blocks ahead of what is written, for a hole that can't be filled would kill the process that writes to it (file systems
that copy on write, like btrfs and ZFS, promise no such thing). Its end is zeros, which are no frame.
"""

import mmap
import os
from pathlib import Path

STEP = 64 * 1024  # bytes that the file grows by


class Segment:
    """Raises OSError where the disk has no room, and has then written nothing."""

    __slots__ = ("_memory", "_room", "fd", "num_holds", "path", "size", "unread_from")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self.size = 0  # of what was written
        self.num_holds = 0
        self.unread_from: int | None = None  # from here on, settled records are in no memory and have to be read again
        try:
            os.posix_fallocate(self.fd, 0, STEP)
            self._memory = mmap.mmap(self.fd, STEP)
        except OSError:
            os.close(self.fd)
            path.unlink()
            raise
        self._room = STEP

    def append(self, frame: bytes) -> None:
        end = self.size + len(frame)
        if end > self._room:
            self._grow(end)
        self._memory[self.size : end] = frame
        self.size = end

    def finish(self) -> None:
        """Nothing more will be written. The file's descriptor stays open, for its last sync."""
        self._memory.close()
        os.ftruncate(self.fd, self.size)

    def _grow(self, size: int) -> None:
        room = -(-size // STEP) * STEP
        os.posix_fallocate(self.fd, self._room, room - self._room)
        self._memory.resize(room)
        self._room = room
