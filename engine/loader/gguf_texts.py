"""An array of a GGUF file's texts, found but not yet read: a vocabulary with its merges has 100,000. Knows no keys."""

import mmap
import struct
from dataclasses import dataclass

import msgspec
import numpy as np

_LENGTH = struct.Struct("<Q")
_ARRAY, _TEXT = 0xDD, 0xDB  # msgpack's codes before a length of four bytes, the highest first
_LONGEST = 1 << 32


@dataclass(frozen=True, slots=True)
class TextArray:
    """`starts`: where in `data` each text's length begins, 8 bytes, the lowest first; the text comes after it."""

    data: mmap.mmap
    starts: list[int]
    end: int

    @classmethod
    def find(cls, data: mmap.mmap, start: int, count: int) -> "TextArray":
        """Raises struct.error or OverflowError if a text runs past the end."""
        length, starts = _LENGTH.unpack_from, []
        for _ in range(count):
            starts.append(start)
            start += _LENGTH.size + length(data, start)[0]
        if start > len(data):
            raise struct.error(f"a text runs to byte {start}, past the end")
        return cls(data, starts, start)

    def read(self) -> list[str]:
        """Made msgpack in place, all at once, for whoever makes texts of it without Python. Raises ValueError."""
        if not self.starts:
            return []
        raw = np.frombuffer(self.data, np.uint8, self.end - self.starts[0], self.starts[0]).copy()
        at = np.array(self.starts) - self.starts[0]
        lengths = np.diff(at, append=len(raw)) - _LENGTH.size
        if lengths.max() >= _LONGEST:
            raise ValueError("a text of more than 4 GiB")
        raw[at + 3] = _TEXT
        raw[at[:, None] + np.arange(4, 8)] = lengths.astype(">u4").view(np.uint8).reshape(-1, 4)
        is_kept = np.ones(len(raw), bool)
        is_kept[at[:, None] + np.arange(3)] = False
        packed = bytes([_ARRAY]) + len(at).to_bytes(4, "big") + raw[is_kept].tobytes()
        return msgspec.msgpack.decode(packed, type=list[str])
