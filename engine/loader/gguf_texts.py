"""An array of a GGUF file's texts, found but not yet read: a vocabulary with its merges has 100,000. Knows no keys."""

import mmap
import struct
from array import array
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

_LENGTH = struct.Struct("<Q")
_ARRAY, _TEXT = 0xDD, 0xDB  # msgpack's codes before a length of four bytes, the highest first
_HEAD = 5  # bytes of the two together
_LONGEST = 1 << 32
_SPACE = 0x20

Bytes = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TextArray:
    """`starts`: where in `data` each text's length begins, 8 bytes, the lowest first; the text comes after it."""

    data: mmap.mmap
    starts: "array[int]"
    end: int

    @classmethod
    def find(cls, data: mmap.mmap, start: int, count: int) -> "TextArray":
        """Raises struct.error or OverflowError if a text runs past the end."""
        length, starts = _LENGTH.unpack_from, array("q")
        for _ in range(count):
            starts.append(start)
            start += _LENGTH.size + length(data, start)[0]
        if start > len(data):
            raise struct.error(f"a text runs to byte {start}, past the end")
        return cls(data, starts, start)

    def read(self) -> list[str]:
        """Raises ValueError where a text is none."""
        return _texts(*self._joined()) if self.starts else []

    def read_pairs(self) -> list[tuple[str, str]]:
        """Each text cut at its one space. Raises ValueError where a text is none, or has not just one."""
        if not self.starts:
            return []
        joined, lengths = self._joined()
        ends, spaces = np.cumsum(lengths), np.flatnonzero(joined == _SPACE)
        if len(spaces) != len(ends) or (spaces >= ends).any() or (spaces < ends - lengths).any():
            raise ValueError("a pair of texts is not two with a space between")
        halves = np.stack([spaces - (ends - lengths), ends - spaces - 1], axis=1).reshape(-1)
        found = _texts(joined[joined != _SPACE], halves)
        return list(zip(found[::2], found[1::2], strict=True))

    def _joined(self) -> tuple[Bytes, Lengths]:
        """The bytes of all texts without what stands between them, and each text's number of bytes."""
        first = self.starts[0]
        at = np.frombuffer(self.starts, np.int64) - first
        raw = np.frombuffer(self.data, np.uint8, self.end - first, first)
        is_text = np.ones(len(raw), bool)
        for i in range(_LENGTH.size):
            is_text[at + i] = False
        return raw[is_text], np.diff(at, append=len(raw)) - _LENGTH.size


def _texts(joined: Bytes, lengths: Lengths) -> list[str]:
    """As msgpack, from which all are made at once without Python. Raises ValueError."""
    if lengths.max() >= _LONGEST:
        raise ValueError("a text of more than 4 GiB")
    ends = _HEAD + np.cumsum(lengths + _HEAD)
    packed, is_text = np.empty(ends[-1], np.uint8), np.ones(ends[-1], bool)
    heads = np.append(0, ends - lengths - _HEAD)  # the array's own comes first
    numbers = np.append(len(lengths), lengths)
    for i in range(_HEAD):
        is_text[heads + i] = False
        packed[heads + i] = numbers >> 8 * (_HEAD - 1 - i) & 0xFF
    packed[heads] = _TEXT
    packed[0] = _ARRAY
    packed[is_text] = joined
    return msgspec.msgpack.decode(packed.data, type=list[str])
