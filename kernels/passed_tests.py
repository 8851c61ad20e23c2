"""Self-tests that need not be run again: an empty file beside the library for each that it passed. Knows no kernel.

The file's name is a digest of all that the outcome depends on, so there is nothing in it that could be stale or torn.
"""

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch

from kernels.cpu.build import cpu_flags
from kernels.operations import HeadShape

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class PassedTest:
    """Of one library file, on this processor, with this torch and these Python sources, for models with such heads."""

    mark: Path

    @classmethod
    def of(cls, library: Path, heads: HeadShape) -> "PassedTest":
        """Raises OSError if the library's file is not there."""
        key = hashlib.sha256(library.read_bytes())
        for source in sorted((*_FOLDER.glob("*.py"), *_FOLDER.glob("cpu/*.py"))):
            key.update(source.read_bytes())
        key.update(repr((sorted(cpu_flags()), torch.__version__, heads)).encode())
        return cls(library.with_name(f"{library.stem}-{key.hexdigest()[:24]}.passed"))

    def is_remembered(self) -> bool:
        return self.mark.exists()

    def remember(self) -> None:
        """Where that can't be written, the test will be run again."""
        with contextlib.suppress(OSError):
            self.mark.touch()
