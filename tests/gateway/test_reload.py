"""An edited config is taken over; a faulty one leaves everything as it was and says why."""

import logging
from pathlib import Path

import pytest

from gateway.config import Config, load
from gateway.config_check import ConfigError
from gateway.reload import ConfigWatcher

MODEL = "\n[[provider]]\nname = 'p'\nbase_url = 'http://127.0.0.1:1/v1'\n[[model]]\nname = 'm'\nprovider = 'p'\n"

pytestmark = pytest.mark.anyio


class Applied(list[Config]):
    async def __call__(self, config: Config) -> None:
        self.append(config)


async def test_a_good_edit_is_applied_once(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[cache]\nttl_s = 10\n" + MODEL)
    applied = Applied()
    watcher = ConfigWatcher(path, load(path), applied)
    assert not await watcher.check()
    path.write_text("[cache]\nttl_s = 20.5\n" + MODEL)
    assert await watcher.check()
    assert not await watcher.check()
    assert [config.cache.ttl_s for config in applied] == [20.5]


async def test_a_bad_edit_keeps_the_old_and_says_why_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[cache]\nttl_s = 10\n" + MODEL)
    applied = Applied()
    watcher = ConfigWatcher(path, load(path), applied)
    path.write_text("[cache]\nttl = 10\n" + MODEL)
    with caplog.at_level(logging.ERROR):
        assert not await watcher.check()
        assert not await watcher.check()
    assert applied == []
    assert [record.getMessage() for record in caplog.records] == [
        "config.toml was edited but not taken over, the old one stays: cache.ttl: unknown key; did you mean 'ttl_s'?"
    ]
    assert watcher.last_error
    path.write_text("[cache]\nttl_s = 30\n" + MODEL)
    assert await watcher.check()
    assert watcher.last_error is None


async def test_a_config_that_cannot_be_applied_counts_as_bad(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("" + MODEL)

    async def refuse(config: Config) -> None:
        raise ConfigError(["model[0].engine: needs a restart"])

    watcher = ConfigWatcher(path, load(path), refuse)
    path.write_text("[cache]\nttl_s = 3\n" + MODEL)
    assert not await watcher.check()
    assert watcher.last_error == "model[0].engine: needs a restart"


async def test_a_file_that_vanishes_is_a_bad_edit(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("" + MODEL)
    watcher = ConfigWatcher(path, load(path), Applied())
    path.unlink()
    assert not await watcher.check()
    assert watcher.last_error is not None


async def test_start_only_sections_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "config.toml"
    path.write_text("" + MODEL)
    watcher = ConfigWatcher(path, load(path), Applied())
    path.write_text("[server]\nport = 9000\n" + MODEL)
    with caplog.at_level(logging.WARNING):
        assert await watcher.check()
    assert "[server] take effect at the next start" in caplog.text
