"""A Llama-family folder in Hugging Face's layout (config.json, safetensors, tokenizer.json) -> Checkpoint."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine.errors import ModelLoadError
from engine.loader.checkpoint import Checkpoint, expect_shape, refusing_damage
from engine.models.config import ModelConfig, RopeScaling
from engine.tokenizer import Tokenizer
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
            tokenizer=Tokenizer.from_folder(folder, _eos_ids(raw, folder), tokenizer_config),
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


def read_config(raw: dict[str, Any], folder: Path) -> ModelConfig:
    """Raises ModelLoadError."""
    with refusing_damage(folder / "config.json"):
        head_dim = int(raw.get("head_dim") or raw["hidden_size"] // max(raw["num_attention_heads"], 1))
        return ModelConfig(
            architecture=str(raw["model_type"]),
            hidden_size=int(raw["hidden_size"]),
            num_layers=int(raw["num_hidden_layers"]),
            num_heads=int(raw["num_attention_heads"]),
            num_kv_heads=int(raw.get("num_key_value_heads") or raw["num_attention_heads"]),
            head_dim=head_dim,
            intermediate_size=int(raw["intermediate_size"]),
            vocab_size=int(raw["vocab_size"]),
            context_length=int(raw["max_position_embeddings"]),
            rope_theta=float(_rope(raw).get("rope_theta") or raw.get("rope_theta") or 10000.0),
            rms_norm_eps=float(raw["rms_norm_eps"]),
            rope_scaling=_rope_scaling(_rope(raw), folder),
            activation=str(raw.get("hidden_act") or "silu"),
            biases=tuple(f"{folder}/config.json: {key}" for key in ("attention_bias", "mlp_bias") if raw.get(key)),
            rotary_dim=int(head_dim * (_rope(raw).get("partial_rotary_factor") or raw.get("partial_rotary_factor", 1))),
        )


def _rope(raw: dict[str, Any]) -> dict[str, Any]:
    """transformers 5 writes rope_parameters, earlier versions rope_scaling."""
    return raw.get("rope_parameters") or raw.get("rope_scaling") or {}


def _rope_scaling(rope: dict[str, Any], folder: Path) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=float(rope["factor"]))
    if kind == "llama3":
        return RopeScaling(
            kind="llama3",
            factor=float(rope["factor"]),
            low_freq_factor=float(rope["low_freq_factor"]),
            high_freq_factor=float(rope["high_freq_factor"]),
            original_context_length=int(rope["original_max_position_embeddings"]),
        )
    raise ModelLoadError(f"{folder}/config.json: rope scaling {kind!r} is not supported (default, linear, llama3 are)")


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
