"""Compiles the C++ kernels of this folder at first use, for one instruction set.

Knows no torch op.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kernels.cpu.library_cache import kept_library

FOLDER = Path(__file__).parent
_OPTIONS = (
    *("-O3", "-std=c++20", "-fPIC", "-pthread", "-Wall", "-Wextra", "-fno-math-errno"),
    # A product and a sum are one rounding or two as written, not as the compiler likes it in this copy of a function.
    "-ffp-contract=off",
    *("-Wno-uninitialized", "-Wno-maybe-uninitialized"),  # GCC bug 105593: its own AVX-512 headers
)


class KernelUnavailableError(Exception):
    """The kernels can't be had on this machine; the message says why and what would help."""


@dataclass(slots=True, frozen=True)
class Level:
    """An instruction set. `flags`: its parts, as /proc/cpuinfo calls them; the compiler spells some otherwise."""

    name: str
    flags: tuple[str, ...]

    @property
    def options(self) -> list[str]:
        spelling = {"avx512_vnni": "avx512vnni", "avx512_bf16": "avx512bf16"}
        return ["-m" + spelling.get(flag, flag.replace("_", "-")) for flag in self.flags]


_AVX2 = ("avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16")
_AMX = (*_AVX512, "amx_tile", "amx_bf16", "amx_int8")
LEVELS = {
    name: Level(name, flags) for name, flags in (("amx", _AMX), ("avx512", _AVX512), ("avx2", _AVX2))
}  # best first


def load_library(level: Level, sources: Sequence[Path] | None = None) -> ctypes.CDLL:
    """The kernels compiled for `level`, built unless the cache has them. Raises KernelUnavailableError.

    `sources`: the files to compile, instead of all in this folder.
    """
    missing = set(level.flags) - cpu_flags()
    if missing:
        raise KernelUnavailableError(f"this processor lacks {', '.join(sorted(missing))}")
    compiler = next(([path, *words] for name, *words in _compilers() if (path := shutil.which(name))), None)
    if compiler is None:
        raise KernelUnavailableError("no C++ compiler was found (Debian: apt install g++)")
    sources = sources or sorted(FOLDER.glob("*.cpp"))
    options = [*_OPTIONS, *level.options]
    key = hashlib.sha256()  # of contents, not of places: checkouts of one source share a library
    for source in (*sources, *sorted(FOLDER.glob("*.h"))):
        key.update(source.read_bytes())
    try:
        key.update(repr((options, compiler, _version(compiler))).encode())
        name = f"{level.name}-{key.hexdigest()[:24]}.so"
        library = kept_library(name, lambda target: _compile(compiler, options, sources, target))
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home directory
        raise KernelUnavailableError(f"the kernels can't be built or loaded ({error})") from error
    if hasattr(library, "request_amx") and library.request_amx() != 0:
        raise KernelUnavailableError(
            "the operating system does not let this process use AMX (Linux 5.16 or later does)"
        )
    return library


def _compile(compiler: list[str], options: list[str], sources: Sequence[Path], target: Path) -> None:
    """One compiler run a file, as many at once as there are cores: each takes up to 300 MB.

    The result appears under its name whole or not at all.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = [str(Path(scratch, source.stem + ".o")) for source in sources]
        commands = [
            [*compiler, *options, f"-I{FOLDER}", "-c", str(source), "-o", out]
            for source, out in zip(sources, objects, strict=True)
        ]
        for errors in pool.map(_errors_of, commands):
            if errors is not None:
                raise KernelUnavailableError(f"{' '.join(compiler)} can't compile the kernels: {errors}")
        library = Path(scratch, target.name)
        errors = _errors_of([*compiler, "-shared", "-pthread", *objects, "-o", str(library)])
        if errors is not None:
            raise KernelUnavailableError(f"{' '.join(compiler)} can't link the kernels: {errors}")
        library.replace(target)


def _errors_of(command: list[str]) -> str | None:
    """What a compiler that failed says, from its first error on: warnings about its own headers come before."""
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if not done.returncode:
        return None
    lines = done.stderr.strip().splitlines()
    first = next((i for i, line in enumerate(lines) if "error" in line), 0)
    return "\n".join(lines[first:])[:500]


def _compilers() -> list[list[str]]:
    """Command lines to try, in order: CXX may be a launcher with a compiler, or have options ("ccache g++ -m64")."""
    chosen = os.environ.get("CXX", "").split()
    return [*([chosen] if chosen else []), ["g++"], ["c++"], ["clang++"]]


def _version(compiler: list[str]) -> str:
    return subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False).stdout


def cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return next((frozenset(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), frozenset())
