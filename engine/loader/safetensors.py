"""A model folder in Hugging Face's layout (config.json, safetensors, tokenizer.json) -> Checkpoint."""

import json
from pathlib import Path
from typing import Any

from engine.errors import ModelLoadError
from engine.loader.checkpoint import Checkpoint, refusing_damage
from engine.loader.folder_config import read_config
from engine.loader.folder_weights import FolderWeights
from engine.loader.shards import REMEDY
from engine.tokenizer.folder import tokenizer_from_folder
from engine.types import LoadProgress


def load(folder: Path, progress: LoadProgress | None = None) -> Checkpoint:
    """Read the config and open the tensor files; weights are read when asked for. Raises ModelLoadError."""
    with refusing_damage(folder):
        raw = read_json(folder / "config.json")
        tokenizer_config = _optional_json(folder / "tokenizer_config.json")
        return Checkpoint(
            name=folder.name,
            config=read_config(raw, folder),
            weights=FolderWeights(folder, _quantisation(raw, folder), progress),
            read_tokenizer=lambda: tokenizer_from_folder(folder, _eos_ids(raw, folder), tokenizer_config),
            chat_template=_chat_template(folder, tokenizer_config, "default"),
            tool_template=_chat_template(folder, tokenizer_config, "tool_use"),
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


def _quantisation(raw: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """AutoGPTQ wrote a file of its own before config.json had a place for it."""
    return raw.get("quantization_config") or _optional_json(folder / "quantize_config.json") or None


def _eos_ids(raw: dict[str, Any], folder: Path) -> frozenset[int]:
    generation = _optional_json(folder / "generation_config.json")
    found: set[int] = set()
    for value in (raw.get("eos_token_id"), generation.get("eos_token_id")):
        found.update(value if isinstance(value, list) else [] if value is None else [value])
    return frozenset(found)


def _chat_template(folder: Path, tokenizer_config: dict[str, Any], name: str) -> str | None:
    is_default = name == "default"
    file = folder / ("chat_template.jinja" if is_default else f"additional_chat_templates/{name}.jinja")
    if file.exists():
        return file.read_text("utf-8")
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):  # several, by name
        return next((entry["template"] for entry in template if entry.get("name") == name), None)
    return template if is_default else None
