"""An edited config is taken over; a faulty one leaves everything as it was and says why."""

import asyncio
import logging
from pathlib import Path

import pytest

from gateway.config import Config, load
from gateway.config_check import ConfigError
from gateway.reload import ConfigWatcher
from gateway.store.errors import StoreUnavailable

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


# An edit that is good and can't be taken over at the moment.


class Flaky(list[Config]):
    """Fails with each of these in turn, then applies."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def __call__(self, config: Config) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.append(config)


@pytest.mark.parametrize("error", [StoreUnavailable("the database is away"), OSError("disk full"), KeyError("a bug")])
async def test_what_fails_for_other_reasons_is_said_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(MODEL)
    applied = Flaky(error, error)
    watcher = ConfigWatcher(path, load(path), applied)
    path.write_text("[cache]\nttl_s = 20\n" + MODEL)
    with caplog.at_level(logging.ERROR):
        assert not await watcher.check()
        assert watcher.last_error is not None
        assert str(error) in watcher.last_error
        assert not await watcher.check()
    assert len(caplog.records) == 1  # not every half second
    assert str(error) in caplog.text
    assert await watcher.check()
    assert [config.cache.ttl_s for config in applied] == [20]
    assert watcher.last_error is None
    assert not await watcher.check()


async def test_an_edit_that_is_taken_back_leaves_no_error_behind(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(MODEL)
    applied = Applied()
    watcher = ConfigWatcher(path, load(path), applied)
    path.write_text("[cache]\nttl = 10\n" + MODEL)
    await watcher.check()
    assert watcher.last_error is not None
    path.write_text(MODEL)
    await watcher.check()
    assert applied == []
    assert watcher.last_error is None


async def test_the_watcher_outlives_whatever_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.reload.POLL_S", 0.005)
    path = tmp_path / "config.toml"
    path.write_text(MODEL)
    applied = Flaky(StoreUnavailable("away"), RuntimeError("a bug"), ConfigError(["x: needs a restart"]))
    watcher = ConfigWatcher(path, load(path), applied)
    task = asyncio.create_task(watcher.run())
    texts = iter(range(1, 100))
    while not applied:
        assert not task.done()
        path.write_text(f"[cache]\nttl_s = {next(texts)}\n" + MODEL)
        await asyncio.sleep(0.02)
        path.write_bytes(b"\xff\xfe")  # half-written, as an editor may leave it
        await asyncio.sleep(0.02)
        path.unlink()
        await asyncio.sleep(0.02)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
