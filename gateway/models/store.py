"""The cache folder: a model appears in it whole or not at all, and only once however many ask at the same time."""

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.models.errors import ModelSourceError

Progress = Callable[[str, int, int | None], None]
"""Called now and then with what is being fetched, the bytes so far and, where known, the bytes in all."""


def install(cache: Path, slug: str, fill: Callable[[Path], None]) -> Path:
    """`cache/slug`, filled once by `fill` in a temporary folder beside it. The one entry in it is the model."""
    target = cache / slug
    if not target.is_dir():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with _lock(cache / f".{slug}.lock"):
                if not target.is_dir():  # another process may have finished while we waited
                    _fill_and_rename(target, fill)
        except OSError as error:
            raise ModelSourceError(f"cannot write the model to {target}: {error.strerror or error}") from error
    return only_entry(target)


def only_entry(path: Path) -> Path:
    """Folders that hold nothing but one file or folder stand for it."""
    while path.is_dir():
        entries = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
        if len(entries) != 1:
            break
        path = entries[0]
    return path


def _fill_and_rename(target: Path, fill: Callable[[Path], None]) -> None:
    staging = Path(tempfile.mkdtemp(prefix=".pulling-", dir=target.parent))
    try:
        inside = staging / "model"
        inside.mkdir()
        fill(inside)
        inside.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # the kernel lets go of it when the process dies
        yield
