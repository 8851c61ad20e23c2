"""All commands alike: how they fail, how fast they tell what they do, and their page in the docs."""

import subprocess
import sys

import pytest

from gateway.cli.reference import reference
from tests.conftest import ROOT
from tests.gateway.cli.conftest import Tollhouse


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (("keys", "create", "--tenant", "nobody"), "no tenant named 'nobody'", 1),
        (("keys", "revoke", "sk-th-zzzz"), "no such key", 1),
        (("tenants", "disable", "nobody"), "no tenant named 'nobody'", 1),
        (("tenants", "add", "two words"), "letters, digits", 1),
        (("tenants", "add", "x", "--baseline-model", "nothing"), "no model named 'nothing'", 2),
        (("tenants", "add", "x", "--requests-per-minute", "0"), "'0' is neither a number from 1 on", 2),
        (("costs", "--tenant", "nobody"), "no tenant named 'nobody'", 1),
        (("tenants", "set", "nobody", "--requests-per-minute", "1"), "no tenant named 'nobody'", 1),
        (("tenants", "set", "x"), "nothing to change", 2),
        (("tenants", "set", "x", "--tokens-per-minute", "-1"), "neither a number from 1 on nor unlimited nor none", 2),
        (("tenants", "set", "x", "--baseline-model", "nothing"), "no model named 'nothing'", 2),
        (("prices", "set", "nothing", "--input", "1", "--output", "2"), "no model named 'nothing'", 2),
        (("prices", "set", "m", "--input", "nan", "--output", "2"), "not from 0 to 1,000,000", 2),
        (("prices", "set", "m", "--input", "-1", "--output", "2"), "not from 0 to 1,000,000", 2),
        (("prices", "set", "m", "--input", "1", "--output", "free"), "not an amount in dollars", 2),
        (("prices", "set", "m", "--input", "1", "--output", "2", "--valid-from", "soon"), "not a time such as", 2),
        (("costs", "--since", "yesterday"), "neither a day", 2),
        (("costs", "--since", "99999999999d"), "before the first day", 2),
        (("costs", "--since", "9999999d"), "before the first day", 2),
        (("models", "pull", "pypi:name"), "exact version", 1),
        (("models", "pull", "./missing.gguf"), "no such file", 1),
        (("serve", "--config", "/missing/config.toml"), "No such file", 1),
    ],
)
def test_what_goes_wrong_is_one_line_and_an_exit_code(
    tollhouse: Tollhouse, arguments: tuple[str, ...], says: str, code: int
) -> None:
    assert says in tollhouse.fails(*arguments, code=code)


def test_help_imports_nothing_heavy() -> None:
    """So that it is instant; measured as 0.15 s."""
    script = (
        "import sys; from gateway.cli.root import cli\n"
        "try: cli(['--help'], prog_name='tollhouse')\n"
        "except SystemExit: pass\n"
        "heavy = {'rich', 'sqlalchemy', 'litestar', 'numpy', 'torch', 'granian', 'msgspec'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "Show what was spent and saved." in done.stdout


def test_the_reference_page_is_what_the_commands_say() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == reference(), "run: python -m gateway.cli.reference > docs/cli.md"
