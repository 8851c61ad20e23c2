"""What gateways that died left in their journals: settled requests, and attempts that were opened and never settled."""

import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import MsgspecError
from msgspec.structs import replace

from gateway.ledger.entries import OPENED, decode_opened, decode_settled
from gateway.ledger.frames import Frame, read_frames
from gateway.ledger.journal import LOCK, SUFFIX
from gateway.ledger.progress import read_progress
from gateway.ledger.records import AttemptRecord, RequestRecord
from gateway.money import part_of

log = logging.getLogger("tollhouse.ledger")
Opened = dict[str, tuple[AttemptRecord, RequestRecord]]  # by request, its latest attempt
Pricing = Callable[[AttemptRecord], int]


class Orphan:
    """A journal folder whose owner is gone. It is ours until closed: no other gateway gets its lock."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock = lock

    def batches(self, price: Pricing) -> Iterator[list[RequestRecord]]:
        """All its requests, the lost ones last."""
        opened: Opened = {}
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            offset, end = 0, False
            while not end:
                chunk = read_frames(path, offset)
                settled = [record for frame in chunk.frames if (record := _take(frame, opened)) is not None]
                if settled:
                    yield settled
                offset, end = chunk.next_offset, chunk.end
        if opened:
            log.warning("%d requests were lost by a gateway that died; they are booked as estimated", len(opened))
            progress = read_progress(self.folder)
            yield [_lost(attempt, request, progress.get(attempt.id, 0), price) for attempt, request in opened.values()]

    def close(self, *, delete: bool) -> None:
        if delete:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def find_orphans(folder: Path) -> list[Orphan]:
    orphans: list[Orphan] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not path.is_dir():
            continue
        try:
            lock = os.open(path / LOCK, os.O_RDWR)
        except FileNotFoundError:
            continue  # another gateway has just finished with it
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)  # its owner lives
            continue
        orphans.append(Orphan(path, lock))
    return orphans


def read_settled(path: Path, offset: int, stop: int) -> tuple[list[RequestRecord], int]:
    """Settled records of a segment between two offsets, as many as one chunk has, and where to read on."""
    chunk = read_frames(path, offset, stop=stop)
    ignored: Opened = {}
    records = [record for frame in chunk.frames if (record := _take(frame, ignored)) is not None]
    return records, chunk.next_offset


def _take(frame: Frame, opened: Opened) -> RequestRecord | None:
    try:
        if frame.kind == OPENED:
            attempt, request = decode_opened(frame)
            opened[request.id] = (attempt, request)
            return None
        record = decode_settled(frame)
    except MsgspecError as error:
        log.error("a record of the journal is not understood and left out: %s", error)
        return None
    opened.pop(record.id, None)
    return record


def _lost(attempt: AttemptRecord, request: RequestRecord, num_streamed: int, price: Pricing) -> RequestRecord:
    """What was asked is booked, as far as it was known at dispatch, and of a stream as much as had come."""
    usage = replace(attempt.usage, completion_tokens=num_streamed, estimated=True)
    lost = replace(attempt, status="lost", usage=usage)
    lost = replace(lost, cost_nanousd=part_of(price(lost), request.price_ppm))
    attempts = (*request.attempts, lost)
    return replace(
        request,
        status="lost",
        http_status=0,
        error_code="gateway_died",
        model=lost.model,
        provider=lost.provider,
        usage=lost.usage,
        cost_nanousd=sum(each.cost_nanousd for each in attempts),
        attempts=attempts,
    )
