"""The write-ahead journal: append-only segments in a folder that one process owns, gone once all they hold is in SQL.

Knows requests by id and frames by their bytes, nothing of money or of databases. All methods belong to one thread.

A request's Hold keeps alive every segment with one of its frames, until it is released. A frame that can't be written
(the disk is full) stays in memory with its Hold and is written as soon as that works again.
"""

import fcntl
import logging
import os
import time
from pathlib import Path

import msgspec

from gateway.ids import new_id
from gateway.ledger.errors import LedgerError
from gateway.ledger.fsync import Syncer
from gateway.ledger.segment import Segment

log = logging.getLogger("tollhouse.ledger")
_RETRY_S = 0.2
LOCK = "lock"
SUFFIX = ".journal"


class Hold(msgspec.Struct, eq=False):
    """What the journal keeps for one request."""

    request_id: str
    segments: list[Segment] = []
    frames: list[bytes] = []  # not written yet
    offset: int = 0  # of the last frame, in the last segment


class Journal:
    """`folder` is shared by all gateways of a home; each makes a folder of its own inside and keeps a lock on it."""

    def __init__(self, folder: Path, fsync_ms: int = 50, segment_bytes: int = 32 << 20) -> None:
        self._segment_bytes = segment_bytes
        self._open: dict[str, Hold] = {}  # requests with an attempt opened and nothing settled
        self._unwritten: dict[str, Hold] = {}
        self._segments: list[Segment] = []  # the last one is written to
        self._retry_at = 0.0
        self._number = 0
        self.error: str | None = None  # why frames are not being written at the moment
        self.folder = folder / new_id()
        try:
            self._lock = self._claim()
            self._segments.append(self._new_segment())
        except OSError as error:
            raise LedgerError(f"the journal can't be written in {folder}: {error.strerror}") from error
        self._syncer = Syncer(fsync_ms / 1000, self._sync_failed) if fsync_ms else None
        self._sync = self._syncer.touch if self._syncer is not None else os.fsync

    @property
    def num_segments(self) -> int:
        return len(self._segments)

    @property
    def num_unwritten(self) -> int:
        return len(self._unwritten)

    def append_opened(self, request_id: str, frame: bytes) -> None:
        hold = self._open.get(request_id)
        if hold is None:
            hold = self._open[request_id] = Hold(request_id)
        self._append(hold, frame)

    def append_settled(self, request_id: str, frame: bytes) -> Hold:
        hold = self._open.pop(request_id, None) or Hold(request_id)
        self._append(hold, frame)
        return hold

    def release(self, hold: Hold) -> None:
        """What it held is in SQL."""
        if hold.frames:
            hold.frames.clear()
            del self._unwritten[hold.request_id]
        for segment in hold.segments:
            segment.num_holds -= 1
            self._delete_if_done(segment)
        hold.segments.clear()

    def forget(self, hold: Hold) -> bool:
        """The caller has no room for the record: it is to be read again later. False if it could not be written."""
        if hold.frames:
            return False
        segment = hold.segments[-1]
        if segment.unread_from is None:
            segment.unread_from = hold.offset
        self.release(hold)
        return True

    def next_unread(self) -> Segment | None:
        return next((segment for segment in self._segments if segment.unread_from is not None), None)

    def was_read(self, segment: Segment, up_to: int) -> None:
        """And what was read is in SQL."""
        segment.unread_from = up_to if up_to < segment.size else None
        self._delete_if_done(segment)

    def retry(self) -> None:
        """Tries to write what could not be written; to be called now and then."""
        if self._unwritten and time.monotonic() >= self._retry_at:
            self._flush()

    def close(self) -> None:
        """Leaves nothing behind if nothing is needed any more; else the next start finds it."""
        self.retry()
        if self._syncer is not None:
            self._syncer.close()
        last = self._segments.pop()
        try:
            last.finish()
            os.fsync(last.fd)
        except OSError as error:
            self._sync_failed(error)
        os.close(last.fd)
        if not last.num_holds and last.unread_from is None:
            last.path.unlink()
        else:
            self._segments.append(last)
        if not self._segments:
            (self.folder / LOCK).unlink()
            self.folder.rmdir()
        os.close(self._lock)

    def _append(self, hold: Hold, frame: bytes) -> None:
        if self._unwritten:
            self.retry()
        if self._unwritten or not self._write(hold, frame):
            hold.frames.append(frame)
            self._unwritten[hold.request_id] = hold

    def _write(self, hold: Hold, frame: bytes) -> bool:
        segment = self._segments[-1]
        try:
            if segment.size >= self._segment_bytes:
                segment = self._rotate()  # if it fails, so does this write, and both are tried again
            offset = segment.size
            segment.append(frame)
            hold.offset = offset
            if segment not in hold.segments:
                hold.segments.append(segment)
                segment.num_holds += 1
            self._sync(segment.fd)
        except OSError as error:
            self._write_failed(error)
            return False
        if self.error is not None:
            log.info("the journal is written again")
            self.error = None
        return True

    def _flush(self) -> None:
        for hold in list(self._unwritten.values()):
            while hold.frames:
                if not self._write(hold, hold.frames[0]):
                    return
                del hold.frames[0]
            del self._unwritten[hold.request_id]

    def _rotate(self) -> Segment:
        fresh = self._new_segment()
        full = self._segments[-1]
        self._segments.append(fresh)
        full.finish()
        if self._syncer is not None:
            self._syncer.retire(full.fd)
        else:
            os.close(full.fd)
        self._delete_if_done(full)
        return fresh

    def _new_segment(self) -> Segment:
        self._number += 1
        segment = Segment(self.folder / f"{self._number:08d}{SUFFIX}")
        _sync_folder(self.folder)
        return segment

    def _delete_if_done(self, segment: Segment) -> None:
        if segment.num_holds or segment.unread_from is not None or segment is self._segments[-1]:
            return
        self._segments.remove(segment)
        segment.path.unlink()

    def _claim(self) -> int:
        """Locks the folder before it gets the name under which others would take it for an orphan."""
        unborn = self.folder.with_name(f".{self.folder.name}")
        unborn.mkdir(parents=True)
        lock = os.open(unborn / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unborn.rename(self.folder)
        _sync_folder(self.folder.parent)
        return lock

    def _write_failed(self, error: OSError) -> None:
        self._retry_at = time.monotonic() + _RETRY_S
        if self.error is None:
            log.error("the journal can't be written, records are kept in memory: %s", error.strerror)
        self.error = error.strerror or str(error)

    def _sync_failed(self, error: OSError) -> None:
        log.error("the journal can't be forced to disk: %s", error.strerror)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
