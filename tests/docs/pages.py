"""The pages that people read, and the blocks in them."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def blocks(page: Path, language: str) -> Iterator[str]:
    """The text of each fenced block of a language."""
    for found in re.finditer(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        yield found[1]


def prose(page: Path) -> str:
    """Without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
