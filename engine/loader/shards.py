"""The tensors of a folder's .safetensors files, by name and mapped, not read. Knows no model.

Format: https://huggingface.co/docs/safetensors. With several files, model.safetensors.index.json says which has what.
"""

from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open

from engine.errors import ModelLoadError
from engine.loader.meter import Meter
from engine.types import LoadProgress

REMEDY = "the folder is damaged or incomplete: download it again"


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


class Shards:
    """Raises ModelLoadError for files that are missing or damaged."""

    def __init__(self, folder: Path, progress: LoadProgress | None = None) -> None:
        self._folder = folder
        self._num_bytes = 0
        self._file_of: dict[str, Any] = {}
        index = folder / "model.safetensors.index.json"
        if (folder / "model.safetensors").exists():
            self._add(folder / "model.safetensors")
        elif index.exists():
            self._add_indexed(index)
        else:
            paths = sorted(folder.glob("*.safetensors"))
            if not paths:
                raise ModelLoadError(f"{folder}: no .safetensors file; convert the model, or give a .gguf file")
            for path in paths:
                self._add(path)
        self._meter = Meter(self._num_bytes, progress)

    def __contains__(self, name: object) -> bool:
        return name in self._file_of

    def tensor(self, name: str) -> torch.Tensor:
        """As stored, whatever its type. Raises ModelLoadError."""
        if name not in self._file_of:
            raise ModelLoadError(f"{self._folder}: tensor {name} is missing; {REMEDY}")
        try:
            tensor: torch.Tensor = self._file_of[name].get_tensor(name)
        except (SafetensorError, OSError, ValueError, RuntimeError, AttributeError, TypeError, KeyError) as error:
            raise ModelLoadError(f"{self._folder}: tensor {name} is unreadable ({error}); {REMEDY}") from error
        self._meter.count(name, tensor.nbytes)
        return tensor

    def unread(self) -> list[str]:
        return self._meter.uncounted(self._file_of)

    def _add_indexed(self, index: Path) -> None:
        try:
            found = msgspec.json.decode(index.read_bytes(), type=_Index)
        except msgspec.DecodeError as error:
            raise ModelLoadError(f"{index}: no index of tensors ({error}); {REMEDY}") from error
        for name in sorted(set(found.weight_map.values())):
            if Path(name).name != name or not (self._folder / name).is_file():
                raise ModelLoadError(f"{index}: it names the file {name!r}, which is missing; {REMEDY}")
            self._add(self._folder / name)
        for tensor, name in found.weight_map.items():
            if tensor not in self._file_of:
                raise ModelLoadError(
                    f"{self._folder / name}: tensor {tensor} is missing, which the index names; {REMEDY}"
                )

    def _add(self, path: Path) -> None:
        try:
            file = safe_open(path, framework="pt")
            names = file.keys()  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError) as error:
            raise ModelLoadError(f"{path}: unreadable ({error}); {REMEDY}") from error
        self._num_bytes += path.stat().st_size
        for name in names:
            if name in self._file_of:
                raise ModelLoadError(
                    f"{path}: tensor {name} is in another file, too; keep the files of one model only in {self._folder}"
                )
            self._file_of[name] = file
