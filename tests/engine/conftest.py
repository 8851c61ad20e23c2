"""Makes this folder's helper modules importable (tests are no packages here)."""

import sys
from pathlib import Path

import engine  # noqa: F401  # before torch: it says how OpenMP shall wait

sys.path.insert(0, str(Path(__file__).parent))
