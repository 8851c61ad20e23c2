"""What a loader hands over, whatever format it read: config, weights by Hugging Face name, tokenizer, template."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from engine.errors import ModelLoadError
from engine.models.config import ModelConfig
from engine.types import LoadProgress

if TYPE_CHECKING:
    import torch

    from engine.tokenizer import Tokenizer
    from kernels.matrix import Matrix

_REMEDY = "it is damaged or incomplete: download it again"


class Weights(Protocol):
    """Tensors by name, read when asked for: a checkpoint never lies in memory twice."""

    def __contains__(self, name: object) -> bool: ...

    def get(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The tensor as stored, or float32 where it was quantised. ModelLoadError when absent or of another shape."""
        ...

    def matrix(self, name: str, shape: tuple[int, int]) -> Matrix:
        """A linear layer's weight, quantised as stored. ModelLoadError when absent or of another shape."""
        ...

    def unread(self) -> list[str]:
        """The file's own names of the tensors that nobody has asked for yet."""
        ...


@dataclass(frozen=True)
class Checkpoint:
    name: str
    config: ModelConfig
    weights: Weights
    read_tokenizer: Callable[[], Tokenizer]
    chat_template: str | None
    tool_template: str | None = None  # takes its place where there are tools, or calls in the conversation

    def __post_init__(self) -> None:
        for template in (self.chat_template, self.tool_template):
            if not isinstance(template, str | None):
                raise ModelLoadError(f"{self.name}: the chat template is {type(template).__name__}, not a text")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Built when first asked for, as long as the weights take: do it beside them. Raises ModelLoadError."""
        with refusing_damage(Path(self.name)):
            return self.read_tokenizer()


def load_checkpoint(path: str, progress: LoadProgress | None = None) -> Checkpoint:
    """Open a .gguf file or a folder of config.json and safetensors. Raises ModelLoadError.

    Weights are read when they are asked for; `progress` hears of each.
    """
    from engine.loader import gguf, safetensors

    place = Path(path).expanduser()
    if place.is_dir():
        return safetensors.load(place, progress)
    if place.is_file():
        return gguf.load(place, progress)
    raise ModelLoadError(
        f"{path}: no such file or folder; pull the model first (tollhouse models pull) or mend the path"
    )


@contextlib.contextmanager
def refusing_damage(place: Path) -> Iterator[None]:
    """What reading values of wrong types and absurd sizes raises, as ModelLoadError: files are not to be trusted."""
    try:
        yield
    except KeyError as error:
        raise ModelLoadError(f"{place}: key {error} is missing; {_REMEDY}") from error
    except (TypeError, ValueError, IndexError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ModelLoadError(f"{place}: unreadable ({type(error).__name__}: {error}); {_REMEDY}") from error
    except OSError as error:
        raise ModelLoadError(f"{place}: can't be read ({error})") from error


def expect_shape(name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if found != wanted:
        raise ModelLoadError(
            f"tensor {name} has shape {list(found)}, the config calls for {list(wanted)}; "
            "the file is damaged or of another model: download it again"
        )


def expect_finite(name: str, values: torch.Tensor) -> torch.Tensor:
    """The same values. Raises ModelLoadError."""
    if not are_finite(values):
        raise not_finite(name)
    return values


def are_finite(values: torch.Tensor) -> bool:
    import torch

    # NaN is both least and greatest: one pass without a temporary.
    return not values.numel() or all(math.isfinite(extreme.item()) for extreme in torch.aminmax(values))


def not_finite(name: str) -> ModelLoadError:
    return ModelLoadError(f"tensor {name} holds values that are not finite; {_REMEDY}")
