"""`config check`: every fault by its name, and what will be made less of than was asked for."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.root import cli
from tests.conftest import ROOT
from tests.gateway.cli.conftest import CONFIG, Tollhouse


def test_config_check_names_every_fault(tollhouse: Tollhouse) -> None:
    assert "fine" in tollhouse.does("config", "check")
    broken = tollhouse.config.with_name("broken.toml")
    broken.write_text("[cache]\nsimilarity_treshold = 0.9\n[serverr]\nport = 1\n")
    said = tollhouse.fails("config", "check", str(broken))
    assert "2 faults" in said
    assert "cache.similarity_treshold: unknown key; did you mean 'similarity_threshold'?" in said
    assert "serverr: unknown key; did you mean 'server'?" in said


def test_config_check_knows_the_routers_tasks(tollhouse: Tollhouse) -> None:
    tollhouse.config.write_text(tollhouse.config.read_text().replace('"code"', '"cod"'))
    assert "cod" in tollhouse.fails("config", "check")


def test_config_check_says_which_providers_have_no_key(tollhouse: Tollhouse) -> None:
    text = tollhouse.config.read_text().replace('name = "up"', 'name = "up"\napi_key_env = "NO_SUCH_VARIABLE_HERE"')
    tollhouse.config.write_text(text)
    assert "NO_SUCH_VARIABLE_HERE is not set" in tollhouse.does("config", "check")


def with_engine(tollhouse: Tollhouse, model: object, options: str = "") -> None:
    tollhouse.config.write_text(f'{CONFIG}[[engine]]\nname = "local"\nmodel = "{model}"\n{options}')


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("max_model_len = 1", "max_model_len: Expected `int` >= 2"),
        ("max_wait_ms = inf", "max_wait_ms: Expected `float` <= 1000000000.0"),
    ],
)
def test_config_check_refuses_an_engine_that_would_not_start(
    tollhouse: Tollhouse, smollm2_path: Path, options: str, why: str
) -> None:
    with_engine(tollhouse, smollm2_path, options)
    assert f"engine[0].{why}" in tollhouse.fails("config", "check")


def test_config_check_refuses_a_model_that_can_not_be_read(tollhouse: Tollhouse) -> None:
    model = tollhouse.config.with_name("model.gguf")
    model.write_bytes(b"GGUF")
    with_engine(tollhouse, model)
    assert "engine[0] (local): " in tollhouse.fails("config", "check")


def test_config_check_says_what_an_engine_will_make_less_of(tollhouse: Tollhouse, smollm2_path: Path) -> None:
    with_engine(tollhouse, smollm2_path, "max_model_len = 100000\nkv_cache_mb = 64")
    said = tollhouse.does("config", "check")
    assert "note: engine[0] (local): max_model_len = 100000 is cut to the model's own context, 8192 tokens" in said
    assert "note: engine[0] (local): kv_cache_mb = 64 holds" in said
    with_engine(tollhouse, smollm2_path, "max_model_len = 1000\nkv_cache_mb = 64")
    assert "note" not in tollhouse.does("config", "check")
    with_engine(tollhouse, "pypi:no-such-model==1.0")
    assert "pypi:no-such-model==1.0 is not here yet" in tollhouse.does("config", "check")


def test_the_shipped_config_is_fine() -> None:
    result = CliRunner().invoke(cli, ["config", "check", str(ROOT / "config.toml")])
    assert result.exit_code == 0, result.output
