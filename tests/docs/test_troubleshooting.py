"""The messages that docs/troubleshooting.md quotes are such as the code says."""

import ast
import re
from functools import cache

import pytest

from tests.docs.pages import ROOT, prose

PACKAGES = ("gateway", "engine", "kernels", "routing", "semcache")
NOT_OURS = (
    "nanobind:",
    "not valid TOML:",
    "config.toml: No such",
    "provider[0].base_url:",
)  # triton, tomllib, libc, msgspec
LEAST = 8  # characters of a text in the code that count: shorter ones are in everything
OURS = 0.5  # of a message: the rest are names and numbers that differ each time


@cache
def _said() -> list[str]:
    """All texts in the code: f-strings and templates in the parts between what is filled in."""
    trees = (ast.parse(file.read_text()) for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    parts = {part for text in texts for part in re.split(r"%(?:\.\d)?[a-z]", text)}
    return [part for part in parts if len(part) >= LEAST]


def _quoted() -> list[str]:
    """What stands in code marks in the first column of a table, and is longer than a word."""
    cells = re.findall(r"^\| (.+?) \|", prose(ROOT / "docs" / "troubleshooting.md"), re.MULTILINE)
    spans = [span for cell in cells for _, span in re.findall(r"(``?)(.+?)\1(?!`)", cell)]
    return [span for span in spans if span.count(" ") >= 2 and not span.startswith(NOT_OURS)]


def _share_of_ours(message: str) -> float:
    """How much of it is in the code, as a whole text there or as a part of a longer one ("..." stands for the rest)."""
    ours: list[bool | None] = [False] * len(message)  # None: a name in quotes, which does not count
    left_standing = [part for part in message.split("...") if any(part.strip() in text for text in _said())]
    for text in [*_said(), *left_standing]:
        start = message.find(text)
        if start >= 0 and len(text) >= LEAST:
            ours[start : start + len(text)] = [True] * len(text)
    for name in re.finditer(r"'[^']*'", message):
        ours[name.start() : name.end()] = [None] * len(name[0])
    counted = [each for each in ours if each is not None]
    return sum(counted) / len(counted)


def test_there_are_messages() -> None:
    assert len(_quoted()) > 50


@pytest.mark.parametrize("message", _quoted())
def test_a_message_is_said_by_the_code(message: str) -> None:
    assert _share_of_ours(message) >= OURS
