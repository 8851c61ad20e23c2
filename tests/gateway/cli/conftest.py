"""The commands as a user gives them, against a real state folder."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.output import console
from gateway.cli.root import cli

CONFIG = """
[embedding]
model = "{embedder}"

[[provider]]
name = "up"
base_url = "http://127.0.0.1:9/v1"

[[model]]
name = "m"
provider = "up"

[tier.only]
models = ["m"]
tasks = ["code", "chat"]
"""


class Tollhouse:
    """`tollhouse` with a config and a state folder of its own."""

    def __init__(self, folder: Path, embedder: Path) -> None:
        self.home, self.config, self.columns = folder / "state", folder / "config.toml", 200
        self.config.write_text(CONFIG.format(embedder=embedder))

    def __call__(self, *arguments: str) -> Result:
        environment = {
            "TOLLHOUSE_HOME": str(self.home),
            "TOLLHOUSE_CONFIG": str(self.config),
            "COLUMNS": str(self.columns),
        }
        console.cache_clear()  # it remembers its width
        return CliRunner().invoke(cli, list(arguments), env=environment, prog_name="tollhouse")

    def fails(self, *arguments: str, code: int = 1) -> str:
        result = self(*arguments)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result.stderr

    def does(self, *arguments: str) -> str:
        result = self(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture
def tollhouse(tmp_path: Path, minilm_path: Path) -> Tollhouse:
    return Tollhouse(tmp_path, minilm_path)
