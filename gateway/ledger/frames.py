"""The journal's bytes: framed records with a checksum, and a reader that survives torn and damaged ones.

frame = magic (2 bytes), kind (1), length of the payload (4, little-endian), CRC-32 of kind and payload (4), payload
"""

import logging
import struct
import zlib
from pathlib import Path

import msgspec

log = logging.getLogger("tollhouse.ledger")
_MAGIC = b"\xf7T"
_HEADER = struct.Struct("<2sBII")
_READ_BYTES = 1 << 20


class Frame(msgspec.Struct, frozen=True):
    kind: int
    payload: bytes


class Chunk(msgspec.Struct, frozen=True):
    """Frames read from a file, and where to read on; `end` once nothing readable follows."""

    frames: list[Frame]
    next_offset: int
    end: bool


def encode_frame(kind: int, payload: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, kind, len(payload), zlib.crc32(payload, kind)) + payload


def read_frames(path: Path, offset: int = 0, size: int = _READ_BYTES, stop: int | None = None) -> Chunk:
    """About `size` bytes' worth of frames. What a crash tore off is left out, what is damaged is skipped and logged.

    `stop`: how far to look into a file that is being written to; None: to its end.
    """
    with path.open("rb") as file:
        file.seek(offset)
        left = -1 if stop is None else stop - offset
        data = file.read(size if stop is None else min(size, left))
        whole = len(data) < size
        frames: list[Frame] = []
        position = 0
        while True:
            found = _parse(data, position)
            if found is not None:
                frame, position = found
                frames.append(frame)
                continue
            if not whole and not frames:  # one frame larger than a chunk, or damage: look at all that is left
                data += file.read(left if stop is None else left - len(data))
                whole = True
                continue
            if not whole:
                return Chunk(frames, offset + position, False)
            resumed = _next_frame(data, position + 1)
            if resumed is None:
                return Chunk(frames, offset + len(data), True)
            log.error("damage in %s: %d bytes at %d are lost", path, resumed - position, offset + position)
            position = resumed


def _parse(data: bytes, position: int) -> tuple[Frame, int] | None:
    start = position + _HEADER.size
    if start > len(data):
        return None
    magic, kind, length, checksum = _HEADER.unpack_from(data, position)
    if magic != _MAGIC or start + length > len(data):
        return None
    payload = data[start : start + length]
    if zlib.crc32(payload, kind) != checksum:
        return None
    return Frame(kind, payload), start + length


def _next_frame(data: bytes, position: int) -> int | None:
    while (position := data.find(_MAGIC, position)) >= 0:
        if _parse(data, position) is not None:
            return position
        position += 1
    return None
