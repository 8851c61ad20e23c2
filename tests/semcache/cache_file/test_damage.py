"""What a kill, a damaged file, a full disk and a busy one cost: entries, and never the start."""

import asyncio
import logging
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from semcache.cache import SemanticCache
from semcache.errors import StoreError
from semcache.key import digest
from semcache.store import write_behind
from semcache.store.cache_file import CacheFile
from semcache.store.opening import open_file
from semcache.store.write_behind import WriteBehind
from semcache.types import CacheOptions, Question
from tests.semcache.cache_file.conftest import Start, fill, outcomes, several, stored
from tests.semcache.conftest import Ask, Reply

pytestmark = pytest.mark.anyio

WRITER = """
import asyncio, sys, time
from pathlib import Path
from semcache.cache import SemanticCache
from semcache.key import digest
from semcache.store.opening import open_file
from semcache.types import CacheOptions, Question, StoredAnswer

async def main():
    cache = SemanticCache(CacheOptions(), None, file=await open_file(Path(sys.argv[1]), wanted=True))
    number = 0
    while True:
        question = Question(partition=b"p", exact_key=digest(number), text=f"question {number}")
        answer = StoredAnswer(entry_id=str(number), question=question.text, body=b"x" * 2000, model="m", tier="t",
                              prompt_tokens=1, completion_tokens=1, created_at=time.time())
        await cache.admit(question, answer, None)
        number += 1
        if number % 100 == 0:
            await cache.settle()
            print(number, flush=True)

asyncio.run(main())
"""


async def test_a_killed_process_loses_what_was_on_its_way_and_nothing_else(start: Start, path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if (settled := int(line)) >= 3000:
                break
        os.kill(writer.pid, signal.SIGKILL)
    cache = await start()
    questions = [Question(partition=b"p", exact_key=digest(number)) for number in range(settled)]
    assert set(await outcomes(cache, questions)) == {"hit-exact"}


async def test_a_damaged_row_costs_its_entry(
    start: Start, ask: Ask, reply: Reply, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    questions = several(ask, 50)
    await stored(start, questions, reply)
    raw = path.read_bytes()
    assert raw.count(questions[7].text.encode()) > 1
    path.write_bytes(raw.replace(b"country number 7?", b"country number X?"))
    cache = await start()
    assert await outcomes(cache, questions) == ["hit-exact"] * 7 + ["miss"] + ["hit-exact"] * 42
    assert "1 of its entries are damaged" in caplog.text
    await cache.aclose()
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM entries").fetchone() == (49,)
    database.close()


@pytest.mark.parametrize("bad", [None, "text", 5, b"", b"\x00garbage"])
async def test_a_row_of_any_kind_is_left_out(start: Start, ask: Ask, reply: Reply, path: Path, bad: object) -> None:
    questions = several(ask, 3)
    await stored(start, questions, reply)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE entries SET record = ? WHERE number = 1", (bad,))
    database.close()
    assert await outcomes(await start(), questions) == ["hit-exact", "miss", "hit-exact"]


async def test_broken_pages_cost_the_entries_in_them(
    start: Start, ask: Ask, reply: Reply, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    questions = several(ask, 3000)
    await stored(start, questions, reply, b"x" * 500)
    raw = bytearray(path.read_bytes())
    pages = len(raw) // 4096
    for page in (pages // 2, pages - 2):  # in the middle and at the end
        raw[page * 4096 : page * 4096 + 4096] = os.urandom(4096)
    path.write_bytes(raw)
    cache = await start()
    found = (await outcomes(cache, questions)).count("hit-exact")
    assert 2900 < found < 3000
    assert "is damaged" in caplog.text
    more = several(ask, 3010)[3000:]
    await fill(cache, more, reply)
    await cache.aclose()
    caplog.clear()
    again = await start()
    assert again.stats().entries == found + 10
    assert caplog.text == ""  # it was made whole


async def test_no_damage_whatever_keeps_a_cache_from_starting(start: Start, ask: Ask, reply: Reply, path: Path) -> None:
    await stored(start, several(ask, 300), reply, b"x" * 300)
    sound = path.read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(15):
        broken = bytearray(sound)
        at, length = int(rng.integers(len(sound))), int(rng.integers(1, 20_000))
        broken[at : at + length] = rng.bytes(len(broken[at : at + length]))
        path.write_bytes(broken[: int(rng.integers(1, len(broken)))] if rng.random() < 0.3 else broken)
        for companion in ("-wal", "-shm"):
            path.with_name(path.name + companion).unlink(missing_ok=True)
        cache = await start()
        question = ask("asked after the damage")
        await fill(cache, [question], reply)
        await cache.aclose()
        again = await start()
        assert await outcomes(again, [question]) == ["hit-exact"]
        await again.aclose()


@pytest.mark.parametrize(
    "content", [b"no database at all" * 1000, b"\x00" * 8192, b"SQLite format 3\x00" + b"?" * 5000]
)
async def test_a_file_that_is_no_database_is_moved_aside(
    start: Start, ask: Ask, reply: Reply, path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    path.write_bytes(content)
    cache = await start()
    assert "is no database" in caplog.text
    assert path.with_name("cache.db.damaged").read_bytes() == content
    await stored_in(cache, several(ask, 3), reply)
    assert (await start()).stats().entries == 3


async def stored_in(cache: SemanticCache, questions: list[Question], reply: Reply) -> None:
    await fill(cache, questions, reply)
    await cache.aclose()


async def test_another_versions_file_is_begun_anew(start: Start, ask: Ask, reply: Reply, path: Path) -> None:
    await stored(start, several(ask, 3), reply)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    cache = await start()
    assert cache.stats().entries == 0
    await stored_in(cache, several(ask, 2), reply)
    assert (await start()).stats().entries == 2


async def test_a_folder_that_can_not_be_written_is_no_hindrance(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await open_file(tmp_path / "no such folder" / "cache.db", wanted=True) is None
    assert "kept in memory alone" in caplog.text


async def test_a_full_disk_is_waited_out(
    path: Path, ask: Ask, reply: Reply, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`max_page_count` is SQLite's own full disk: the same error, at the same place."""
    monkeypatch.setattr(write_behind, "PAUSE_S", 0.01)
    caplog.set_level(logging.WARNING)
    file = CacheFile(path)
    behind = WriteBehind(file)
    await behind.start()
    cache = SemanticCache(CacheOptions(), None, file=behind)
    questions = several(ask, 50)
    await fill(cache, questions[:10], reply)
    await cache.settle()
    await behind._in_thread(lambda: file._connection.execute("PRAGMA max_page_count = 20").fetchall())
    await fill(cache, questions[10:], reply, b"x" * 10_000)
    await cache.settle()
    assert caplog.text.count("can't be written") == 1
    assert await outcomes(cache, questions) == ["hit-exact"] * 50  # nobody notices
    await behind._in_thread(lambda: file._connection.execute("PRAGMA max_page_count = 100000").fetchall())
    async with asyncio.timeout(20):
        while behind._waiting:
            await cache.settle()
    await cache.aclose()
    again = CacheFile(path)
    again.open()
    assert sum(len(chunk) for chunk in again.read()) == 50
    again.close()


async def test_with_no_room_on_the_way_entries_are_left_out_and_deletions_are_not(
    start: Start, ask: Ask, reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = several(ask, 40)
    first = await start()
    await fill(first, questions[:20], reply)
    await first.settle()
    monkeypatch.setattr(write_behind, "MAX_WAITING", 5)
    monkeypatch.setattr(write_behind, "MAX_FORGOTTEN", 10)
    await fill(first, questions[20:], reply)
    for question in questions[:20]:
        first.invalidate(question.exact_key.hex())
    await first.aclose()
    back = await outcomes(await start(), questions)
    assert back[:20] == ["miss"] * 20
    assert back.count("hit-exact") <= 5


async def test_an_entry_that_can_not_be_written_ends_nothing(
    start: Start, ask: Ask, reply: Reply, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(write_behind, "PAUSE_S", 0.01)
    cache = await start()
    bad, *good = several(ask, 5)
    await cache.admit(bad, msgspec.structs.replace(reply(bad), model=object()), None)  # type: ignore[arg-type]
    await cache.settle()
    assert "can't be written" in caplog.text
    await fill(cache, good, reply)
    await cache.aclose()
    assert await outcomes(await start(), [bad, *good]) == ["miss"] + ["hit-exact"] * 4


async def test_many_callers_and_a_busy_file_end_up_alike(start: Start, ask: Ask, reply: Reply) -> None:
    cache = await start(max_mb=1)

    async def visit(number: int) -> None:
        question = ask(f"What is the height of mountain {number % 60}?")
        if (await cache.lookup(question)).answer is None:
            await cache.admit(question, reply(question, b"x" * 30_000), None)
        if number % 7 == 0:
            cache.invalidate(question.exact_key.hex())
        if number % 50 == 0:
            await cache.settle()

    await asyncio.gather(*(visit(number) for number in range(600)))
    questions = [ask(f"What is the height of mountain {number}?") for number in range(60)]
    before = await outcomes(cache, questions)
    assert 0 < before.count("hit-exact") < 60
    await cache.aclose()
    assert await outcomes(await start(max_mb=1), questions) == before


def test_only_one_holds_the_file(path: Path) -> None:
    first = CacheFile(path)
    first.open()
    with pytest.raises(StoreError, match="in use by another process"):
        CacheFile(path).open()
    first.close()
    second = CacheFile(path)
    second.open()
    second.close()
