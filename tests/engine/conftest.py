"""Makes this folder's helper modules importable (tests are no packages here)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
