"""Compiled libraries in the user's cache folder: the newest few of each kind. Knows no compiler.

Any number of processes may build, load and remove at once: a library that is loaded outlives its file.
"""

import contextlib
import ctypes
import logging
import os
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)
_KEPT = 5  # of a kind: a few versions of the source side by side
_ATTEMPTS = 3  # to load what others may remove as soon as it is built


def kept_library(name: str, build: Callable[[Path], None]) -> ctypes.CDLL:
    """The library `name` ("kind-key.so"), which `build` puts in place if it isn't there. Raises OSError."""
    folder = _cache_folder()
    target = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    fault: OSError | None = None
    for _ in range(_ATTEMPTS):
        try:
            library = _load(target)
        except OSError as error:  # not there, or no more: another process may remove it at any time
            fault = error
            log.info("building %s, once for this machine and version; it may take a minute or two", target)
            build(target)
        else:
            _remove_old(folder, name.split("-")[0])
            return library
    assert fault is not None
    raise fault


def _load(target: Path) -> ctypes.CDLL:
    """Marks it as the newest. Raises OSError if it isn't there or is no library."""
    target.stat()
    with contextlib.suppress(PermissionError):
        os.utime(target)
    return ctypes.CDLL(str(target))


def _remove_old(folder: Path, kind: str) -> None:
    last_use = {}
    for library in folder.glob(f"{kind}-*.so"):
        with contextlib.suppress(FileNotFoundError):  # what is gone already may be just about to come back
            last_use[library] = library.stat().st_mtime_ns
    for old in sorted(last_use, key=last_use.__getitem__, reverse=True)[_KEPT:]:
        with contextlib.suppress(OSError):  # another process was first, or the folder is another user's
            old.unlink()
            for beside in folder.glob(f"{old.stem}-*"):  # what is remembered of it
                beside.unlink()


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tollhouse"
