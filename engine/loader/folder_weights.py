"""`Weights` over a folder's .safetensors files: floats as they are, GPTQ's and AWQ's layers as quantised matrices."""

from pathlib import Path
from typing import Any

import torch

from engine.errors import ModelLoadError
from engine.loader.checkpoint import expect_finite, expect_shape
from engine.loader.packed_layers import OTHER_FILES, packed_format
from engine.loader.shards import Shards
from engine.types import LoadProgress
from kernels.matrix import Matrix, dense


class FolderWeights:
    """`quantisation`: the config of how linear layers are packed, None for a model of floats. Raises ModelLoadError."""

    def __init__(self, folder: Path, quantisation: dict[str, Any] | None, progress: LoadProgress | None = None) -> None:
        self._format = None if quantisation is None else packed_format(quantisation)
        self._shards = Shards(folder, progress)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._shards or self._is_packed(name))

    def get(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        if len(shape) == 2 and self._is_packed(name):
            return dense(self.matrix(name, (shape[0], shape[1])))
        tensor = self._shards.tensor(name)
        expect_shape(name, tuple(tensor.shape), shape)
        if not tensor.is_floating_point() or tensor.element_size() < 2:
            raise ModelLoadError(f"tensor {name} is {tensor.dtype}, which can't be read; {OTHER_FILES}")
        return expect_finite(name, tensor)

    def matrix(self, name: str, shape: tuple[int, int]) -> Matrix:
        if self._format is not None and self._is_packed(name):
            return self._format.matrix(self._shards, name.removesuffix(".weight"), shape)
        return self.get(name, shape)

    def unread(self) -> list[str]:
        return self._shards.unread()

    def _is_packed(self, name: str) -> bool:
        return (
            self._format is not None
            and name not in self._shards
            and f"{name.removesuffix('.weight')}.qweight" in self._shards
        )
