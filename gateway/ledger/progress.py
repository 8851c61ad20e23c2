"""How far each running stream has come: a number a stream in shared memory, which outlives a process that is killed.

The journal notes a call before it leaves and a request when it is over; in between, a stream costs a store to memory
for each piece. A power cut may take the numbers, and then a stream is booked as one that had not begun.
"""

import logging
import mmap
import os
import struct
from pathlib import Path

log = logging.getLogger("tollhouse.ledger")
SUFFIX = ".progress"
_SLOT = struct.Struct("<32sQ")  # an attempt's id, how many tokens it has brought; both zero: free
_COUNT = struct.Struct("<Q")
_ID_BYTES = 32
SLOTS_A_FILE = 1024


class Mark:
    """One stream's number."""

    __slots__ = ("_memory", "_offset")

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        self._memory = memory
        self._offset = offset

    def note(self, num_tokens: int) -> None:
        _COUNT.pack_into(self._memory, self._offset + _ID_BYTES, num_tokens)


class Progress:
    """The marks of one gateway, in files beside its journal. All methods belong to one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[tuple[Path, mmap.mmap]] = []
        self._free: list[Mark] = []
        self._full = False  # no further file can be made

    def begin(self, attempt_id: str) -> Mark | None:
        """None where the disk has no room: the stream goes on without."""
        if not self._free and not self._grow():
            return None
        mark = self._free.pop()
        _SLOT.pack_into(mark._memory, mark._offset, attempt_id.encode(), 0)
        return mark

    def end(self, mark: Mark) -> None:
        """The books know its stream by now."""
        _SLOT.pack_into(mark._memory, mark._offset, b"", 0)
        self._free.append(mark)

    def close(self) -> None:
        """No stream is left: so are no files."""
        self._free.clear()
        for path, memory in self._files:
            memory.close()
            path.unlink(missing_ok=True)
        self._files.clear()

    def _grow(self) -> bool:
        path, size = self._folder / f"{len(self._files):04d}{SUFFIX}", SLOTS_A_FILE * _SLOT.size
        try:
            memory = _allocate(path, size)
        except OSError as error:
            if not self._full:
                log.error("no file for the progress of streams: %s", error.strerror)
            self._full = True
            return False
        self._full = False
        self._files.append((path, memory))
        self._free += [Mark(memory, offset) for offset in range(0, size, _SLOT.size)]
        return True


def _allocate(path: Path, size: int) -> mmap.mmap:
    """With all its blocks: a hole that can't be filled later would kill the process that writes to it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
        return mmap.mmap(fd, size)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(fd)


def read_progress(folder: Path) -> dict[str, int]:
    """How far the streams of a gateway that died had come, by their attempts' ids. Raises OSError."""
    found: dict[str, int] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        data = path.read_bytes()
        for identifier, count in _SLOT.iter_unpack(data[: len(data) // _SLOT.size * _SLOT.size]):
            if name := identifier.rstrip(b"\0").decode("ascii", "replace"):
                found[name] = count
    return found
