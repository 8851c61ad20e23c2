"""Compiles the C++ kernels of this folder at first use, and keeps the result in the user's cache. Knows no torch op.

The object is linked to the OpenMP library that torch has already loaded: a second one would fight it for the cores.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

REQUIRED_FLAGS = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"})
_FOLDER = Path(__file__).parent
_OPTIONS = (
    *("-O3", "-std=c++17", "-fPIC", "-fopenmp", "-Wall", "-mavx2", "-mfma", "-mf16c"),
    *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512bf16"),
)


from kernels.cpu.build import KernelUnavailableError



def load_library() -> ctypes.CDLL:
    """The compiled kernels, built unless the cache has them. Raises KernelUnavailableError."""
    missing = REQUIRED_FLAGS - _cpu_flags()
    if missing:
        raise KernelUnavailableError(f"this processor lacks {', '.join(sorted(missing))}")
    compiler = next(([path, *words] for name, *words in _compilers() if (path := shutil.which(name))), None)
    if compiler is None:
        raise KernelUnavailableError("no C++ compiler was found (Debian: apt install g++)")
    sources = sorted(_FOLDER.glob("*.cpp"))
    openmp = _loaded_openmp()
    key = hashlib.sha256()
    for source in (*sources, *sorted(_FOLDER.glob("*.h"))):
        key.update(source.read_bytes())
    key.update(repr((_OPTIONS, compiler, _version(compiler), openmp, torch.__version__)).encode())
    target = _cache_folder() / f"kernels-{key.hexdigest()[:24]}.so"
    try:
        if not target.exists():
            _compile(compiler, sources, openmp, target)
        return ctypes.CDLL(str(target))
    except OSError as error:
        raise KernelUnavailableError(f"{target} can't be built or loaded ({error})") from error


def _compile(compiler: list[str], sources: list[Path], openmp: str, target: Path) -> None:
    """One compiler run a file, at once; the result appears under its name whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        objects = [Path(scratch, source.stem + ".o") for source in sources]
        runs = [
            subprocess.Popen(
                [*compiler, *_OPTIONS, "-c", str(source), "-o", str(out)], stderr=subprocess.PIPE, text=True
            )
            for source, out in zip(sources, objects, strict=True)
        ]
        failures = [errors for run in runs if (errors := run.communicate()[1]) and run.returncode]
        if failures:
            raise KernelUnavailableError(f"{' '.join(compiler)} can't compile the kernels: {failures[0].strip()[:500]}")
        library = Path(scratch, target.name)
        link = [*compiler, "-shared", *map(str, objects), openmp, "-o", str(library)]
        linked = subprocess.run(link, capture_output=True, text=True, check=False)
        if linked.returncode:
            raise KernelUnavailableError(f"{' '.join(compiler)} can't link the kernels: {linked.stderr.strip()[:500]}")
        library.replace(target)


def _compilers() -> list[list[str]]:
    """Command lines to try, in order: CXX may be a launcher with a compiler, or have options ("ccache g++ -m64")."""
    chosen = os.environ.get("CXX", "").split()
    return [*([chosen] if chosen else []), ["g++"], ["c++"], ["clang++"]]


def _version(compiler: list[str]) -> str:
    return subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False).stdout


def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return next((frozenset(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), frozenset())


def _loaded_openmp() -> str:
    """The path of the libgomp in this process, which importing torch has brought in."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if Path(path).name.startswith("libgomp"):
            return path
    raise KernelUnavailableError("this torch does not use libgomp, the OpenMP library the kernels need")


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tollhouse"
