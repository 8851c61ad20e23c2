"""A model folder in Hugging Face's layout (config.json, safetensors, tokenizer.json) -> Checkpoint."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine.errors import ModelLoadError
from engine.loader.checkpoint import Checkpoint, expect_shape, refusing_damage
from engine.loader.folder_config import read_config
from engine.tokenizer.folder import tokenizer_from_folder
from kernels.matrix import Matrix

REMEDY = "the folder is damaged or incomplete: download it again"


def load(folder: Path) -> Checkpoint:
    """Read the config and open the tensor files; weights are read when asked for. Raises ModelLoadError."""
    with refusing_damage(folder):
        raw = read_json(folder / "config.json")
        tokenizer_config = _optional_json(folder / "tokenizer_config.json")
        return Checkpoint(
            name=folder.name,
            config=read_config(raw, folder),
            weights=SafetensorsWeights(folder),
            tokenizer=tokenizer_from_folder(folder, _eos_ids(raw, folder), tokenizer_config),
            chat_template=_chat_template(folder, tokenizer_config),
        )


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelLoadError(
            f"{path}: missing; a model folder needs config.json, tokenizer.json and safetensors"
        ) from None
    except ValueError as error:
        raise ModelLoadError(f"{path}: not valid JSON ({error}); {REMEDY}") from error
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path}: not a JSON object; {REMEDY}")
    return value


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _eos_ids(raw: dict[str, Any], folder: Path) -> frozenset[int]:
    generation = _optional_json(folder / "generation_config.json")
    found: set[int] = set()
    for value in (raw.get("eos_token_id"), generation.get("eos_token_id")):
        found.update(value if isinstance(value, list) else [] if value is None else [value])
    return frozenset(found)


def _chat_template(folder: Path, tokenizer_config: dict[str, Any]) -> str | None:
    if (folder / "chat_template.jinja").exists():
        return (folder / "chat_template.jinja").read_text("utf-8")
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):  # several, by name
        template = next((entry["template"] for entry in template if entry.get("name") == "default"), None)
    return template


class SafetensorsWeights:
    """Implements `Weights` over one or several .safetensors files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file_of: dict[str, Any] = {}
        paths = sorted(folder.glob("*.safetensors"))
        if not paths:
            raise ModelLoadError(f"{folder}: no .safetensors file; convert the model, or give a .gguf file")
        for path in paths:
            try:
                file = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise ModelLoadError(f"{path}: unreadable ({error}); {REMEDY}") from error
            self._file_of.update(dict.fromkeys(file.keys(), file))  # type: ignore[no-untyped-call]

    def __contains__(self, name: object) -> bool:
        return name in self._file_of

    def get(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        if name not in self._file_of:
            raise ModelLoadError(f"{self._folder}: tensor {name} is missing; {REMEDY}")
        weight: torch.Tensor = self._file_of[name].get_tensor(name)
        expect_shape(name, tuple(weight.shape), shape)
        if not weight.is_floating_point() or weight.element_size() < 2:
            raise ModelLoadError(
                f"tensor {name} is {weight.dtype}; only float weights can be read from safetensors yet"
            )
        return weight

    def matrix(self, name: str, shape: tuple[int, int]) -> Matrix:
        return self.get(name, shape)
