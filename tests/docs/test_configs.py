"""The configs that are shown, and the one in deploy/, are such as a gateway takes."""

import tomllib
from pathlib import Path

import pytest

from gateway.config import Config, load, parse
from gateway.config_check import complain_about_unknown_keys, convert
from gateway.config_trial import try_out
from tests.docs.pages import PAGES, ROOT, blocks

WHOLE = "# config.toml"  # how a block begins that is a whole file; the others are parts of one
SHOWN = [pytest.param(block, id=f"{page.name}-{i}") for page in PAGES for i, block in enumerate(blocks(page, "toml"))]


@pytest.mark.parametrize("block", SHOWN)
def test_a_block_has_no_key_and_no_value_that_would_be_refused(block: str) -> None:
    tree = tomllib.loads(block)
    complain_about_unknown_keys(tree, Config, hidden=("hash",))
    convert(tree, Config)


@pytest.mark.parametrize("block", [shown for shown in SHOWN if str(shown.values[0]).startswith(WHOLE)])
def test_a_whole_file_is_taken(block: str) -> None:
    try_out(parse(block.encode()))


@pytest.mark.parametrize("path", [ROOT / "config.toml", ROOT / "deploy" / "config.toml"], ids=str)
def test_a_file_is_taken(path: Path) -> None:
    try_out(load(path))
