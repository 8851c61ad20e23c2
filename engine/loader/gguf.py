"""A GGUF file -> Checkpoint. Knows no arithmetic of models."""

from pathlib import Path

import torch

from engine.errors import ModelLoadError
from engine.loader.checkpoint import Checkpoint, expect_shape, refusing_damage
from engine.loader.dequantise import dequantise, matrix
from engine.loader.gguf_config import read_config
from engine.loader.gguf_file import REMEDY, GGUFFile, GGUFTensor
from engine.loader.gguf_names import gguf_name, holds_sum_with_one, row_order
from engine.loader.meter import Meter
from engine.models.config import ModelConfig
from engine.tokenizer.gguf import tokenizer_from_gguf
from engine.types import LoadProgress
from kernels.matrix import Matrix, take_rows


def load(path: Path, progress: LoadProgress | None = None) -> Checkpoint:
    """Map the file and read its metadata; weights are dequantised when asked for. Raises ModelLoadError."""
    with refusing_damage(path):
        file = GGUFFile(path)
        if (num_parts := file.metadata.get("split.count", 1)) > 1:
            raise ModelLoadError(
                f"{path}: one of {num_parts} parts of a model; join them with llama.cpp's llama-gguf-split --merge"
            )
        config = read_config(file)
        return Checkpoint(
            name=str(file.metadata.get("general.name") or path.stem),
            config=config,
            weights=GGUFWeights(file, config, progress),
            read_tokenizer=lambda: tokenizer_from_gguf(file.whole_metadata()),
            chat_template=file.metadata.get("tokenizer.chat_template"),
            tool_template=file.metadata.get("tokenizer.chat_template.tool_use"),
        )


class GGUFWeights:
    """Implements `Weights`. What llama.cpp's converter did to names, row orders and norms is undone."""

    def __init__(self, file: GGUFFile, config: ModelConfig, progress: LoadProgress | None = None) -> None:
        self._file = file
        self._config = config
        self._meter = Meter(sum(tensor.data.nbytes for tensor in file.tensors.values()), progress)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and gguf_name(self._config.architecture, name)[0] in self._file.tensors

    def get(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        # A copy: a view, however small, would keep the whole file mapped.
        weight, order = dequantise(self._stored(name, shape)).clone(), self._row_order(name, shape)
        if holds_sum_with_one(self._config.architecture, name):
            weight = weight.float() - 1
        return weight if order is None else weight[order]

    def matrix(self, name: str, shape: tuple[int, int]) -> Matrix:
        weight, order = matrix(self._stored(name, shape)), self._row_order(name, shape)
        return weight if order is None else take_rows(weight, order)

    def unread(self) -> list[str]:
        return self._meter.uncounted(self._file.tensors)

    def _stored(self, name: str, shape: tuple[int, ...]) -> GGUFTensor:
        stored_name, expert = gguf_name(self._config.architecture, name)
        stored = self._file.tensors.get(stored_name)
        if stored is None:
            raise ModelLoadError(f"{self._file.path}: tensor {stored_name} is missing; {REMEDY}")
        self._meter.count(stored_name, stored.data.nbytes)
        if expert is None:
            expect_shape(stored.name, stored.shape, shape)
            return stored
        assert self._config.experts is not None
        expect_shape(stored.name, stored.shape, (self._config.experts.num, *shape))
        return stored.part(expert)

    def _row_order(self, name: str, shape: tuple[int, ...]) -> torch.Tensor | None:
        return row_order(self._config.architecture, name, shape[0], self._config.head_dim)
