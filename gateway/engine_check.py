"""Checks [[engine]] sections against the models they name, as far as that needs no weights and no network."""

from pathlib import Path

import msgspec

from engine.errors import ModelLoadError
from engine.types import EngineOptions
from gateway.config import Config, EngineConfig
from gateway.config_check import ConfigError
from gateway.models.errors import ModelSourceError
from gateway.models.sources import installed


def check_engines(config: Config, models: Path) -> list[str]:
    """What is worth a note. Raises ConfigError with every engine that would not start."""
    faults: list[str] = []
    notes: list[str] = []
    for index, engine in enumerate(config.engine):
        where = f"engine[{index}] ({engine.name})"
        try:
            notes += [f"{where}: {note}" for note in _check(engine, models)]
        except (ValueError, ModelLoadError, ModelSourceError) as error:
            faults.append(f"{where}: {error}")
    if faults:
        raise ConfigError(faults)
    return notes


def engine_options(engine: EngineConfig, path: Path) -> EngineOptions:
    """The keys of [[engine]] are the engine's own options."""
    return EngineOptions(**(msgspec.structs.asdict(engine) | {"model": str(path)}))


def _check(engine: EngineConfig, models: Path) -> list[str]:
    from engine.fit import check_fit  # torch comes with it
    from engine.validation import check_options

    path = installed(engine.model, models)
    if path is None:
        check_options(engine_options(engine, Path(engine.model)))
        return [f"{engine.model} is not here yet, so its size could not be checked"]
    return check_fit(engine_options(engine, path))
