"""The GGUF container: header, metadata and a memory-mapped view of each tensor's bytes. Knows no model.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.errors import ModelLoadError
from engine.loader.gguf_texts import TextArray

REMEDY = "the file is damaged or incomplete: download it again"

# type code of the format -> struct code; 8 is a string, 9 an array
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MERGES = "tokenizer.ggml.merges"
_MAX_DIMENSIONS = 4
_MAX_ARRAY = 1 << 22  # the largest vocabularies have half a million merges


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """`data` holds the blocks of one tensor as raw bytes; `shape` is in torch's order (rows first)."""

    name: str
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]

    def part(self, index: int) -> "GGUFTensor":
        """One of the tensors that are stacked along the first dimension. No copy."""
        size = len(self.data) // self.shape[0]
        return GGUFTensor(
            f"{self.name}[{index}]", self.kind, self.shape[1:], self.data[index * size : (index + 1) * size]
        )


class GGUFFile:
    """`metadata` by key, arrays of texts unread; `tensors` by name.

    Raises ModelLoadError when the file is not what it says it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, GGUFTensor] = {}
        if path.stat().st_size < 24:
            raise ModelLoadError(f"{path}: shorter than a GGUF header; {REMEDY}")
        with path.open("rb") as file:
            # A private map: what reads it as tensors may want to be able to write. Nothing does.
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        if hasattr(mmap, "MADV_WILLNEED"):
            self._map.madvise(mmap.MADV_WILLNEED)  # all of it will be read: let the disk begin
        self._offset = 0
        try:
            self._read()
        except (struct.error, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ModelLoadError(f"{path}: header unreadable at byte {self._offset} ({error}); {REMEDY}") from error

    def whole_metadata(self) -> dict[str, Any]:
        """With all texts read, merges as pairs. Raises ValueError where that is not what they are."""
        found = dict(self.metadata)
        for key, value in found.items():
            if isinstance(value, TextArray):
                found[key] = value.read_pairs() if key == _MERGES else value.read()
        return found

    def _read(self) -> None:
        magic, version, num_tensors, num_keys = self._unpack("4sIQQ")
        if magic != b"GGUF":
            raise ModelLoadError(f"{self.path}: not a GGUF file (it begins with {magic!r}); check the model's path")
        if version not in (2, 3):
            raise ModelLoadError(f"{self.path}: GGUF version {version} is not supported (2 and 3 are); convert anew")
        for _ in range(num_keys):
            key = self._string()
            self.metadata[key] = self._value(self._unpack("I")[0])
        headers = [self._tensor_header() for _ in range(num_tensors)]
        alignment = int(self.metadata.get("general.alignment", 32))
        if alignment <= 0:
            raise ModelLoadError(f"{self.path}: general.alignment is {alignment}; {REMEDY}")
        start = -(-self._offset // alignment) * alignment
        for name, shape, code, offset in headers:
            if name in self.tensors:
                raise ModelLoadError(f"{self.path}: tensor {name} is there twice; {REMEDY}")
            self.tensors[name] = self._tensor(name, shape, code, start + offset)
        self._expect_apart()

    def _unpack(self, code: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + code, self._map, self._offset)
        self._offset += struct.calcsize("<" + code)
        return values

    def _string(self) -> str:
        (length,) = self._unpack("Q")
        if length > len(self._map) - self._offset:
            raise struct.error(f"a text of {length} bytes runs past the end")
        self._offset += length
        return self._map[self._offset - length : self._offset].decode("utf-8")

    def _value(self, code: int) -> Any:
        if code == _STRING:
            return self._string()
        if code != _ARRAY:
            if code not in _SCALARS:
                raise struct.error(f"unknown value type {code}")
            return self._unpack(_SCALARS[code])[0]
        item, length = self._unpack("IQ")
        if length > min(len(self._map), _MAX_ARRAY):
            raise struct.error(f"an array of {length} values")
        if item in _SCALARS:
            return list(self._unpack(f"{length}{_SCALARS[item]}"))
        if item == _STRING:
            texts = TextArray.find(self._map, self._offset, length)
            self._offset = texts.end
            return texts
        return [self._value(item) for _ in range(length)]

    def _tensor_header(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        (num_dimensions,) = self._unpack("I")
        if num_dimensions > _MAX_DIMENSIONS:
            raise struct.error(f"tensor {name} has {num_dimensions} dimensions")
        shape = self._unpack(f"{num_dimensions}Q")
        code, offset = self._unpack("IQ")
        return name, tuple(reversed(shape)), code, offset

    def _expect_apart(self) -> None:
        end, before = 0, ""
        for tensor in sorted(self.tensors.values(), key=lambda each: each.data.ctypes.data):
            if tensor.data.ctypes.data < end:
                raise ModelLoadError(f"{self.path}: tensors {before} and {tensor.name} overlap; {REMEDY}")
            end, before = tensor.data.ctypes.data + tensor.data.nbytes, tensor.name

    def _tensor(self, name: str, shape: tuple[int, ...], code: int, start: int) -> GGUFTensor:
        try:
            kind = GGMLQuantizationType(code)
        except ValueError:
            raise ModelLoadError(
                f"{self.path}: tensor {name} has the unknown type {code}; {REMEDY}, or use a common quantisation"
            ) from None
        block, num_bytes = GGML_QUANT_SIZES[kind]
        count = int(np.prod(shape, dtype=object)) if shape else 1
        if count % block or (shape and shape[-1] % block):
            raise ModelLoadError(f"{self.path}: tensor {name} {list(shape)} is not whole blocks of {block}; {REMEDY}")
        size = count // block * num_bytes
        if start + size > len(self._map):
            raise ModelLoadError(f"{self.path}: tensor {name} ends beyond the file's {len(self._map)} bytes; {REMEDY}")
        return GGUFTensor(name, kind, shape, np.frombuffer(self._map, np.uint8, size, start))
