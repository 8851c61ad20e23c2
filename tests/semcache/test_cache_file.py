"""The cache's file: what a restart brings back, what damage costs, and that nothing is left of what was erased."""

import asyncio
import logging
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from semcache.cache import SemanticCache
from semcache.embedder import Embedder
from semcache.errors import StoreError
from semcache.key import digest
from semcache.store import write_behind
from semcache.store.cache_file import CacheFile
from semcache.store.opening import open_file
from semcache.store.write_behind import WriteBehind
from semcache.types import CacheOptions, Question
from tests.semcache.conftest import Ask, Reply

pytestmark = pytest.mark.anyio

Start = Callable[..., Awaitable[SemanticCache]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache.db"


@pytest.fixture
async def start(path: Path, anyio_backend: str) -> AsyncIterator[Start]:
    """A cache as a process has it after its start; a second one is the next process, once the first is closed."""
    started: list[SemanticCache] = []

    async def do(embedder: Embedder | None = None, **options: object) -> SemanticCache:
        file = await open_file(path, wanted=True)
        cache = SemanticCache(CacheOptions(embed_timeout_s=60.0, **options), embedder, file=file)  # type: ignore[arg-type]
        started.append(cache)
        await cache.load()
        return cache

    yield do
    for cache in started:
        await cache.aclose()


async def outcomes(cache: SemanticCache, questions: list[Question]) -> list[str]:
    return [(await cache.lookup(question, embed=False)).outcome for question in questions]


async def fill(cache: SemanticCache, questions: list[Question], reply: Reply, body: bytes = b"") -> None:
    for question in questions:
        await cache.admit(question, reply(question, body), None)


def several(ask: Ask, count: int) -> list[Question]:
    return [ask(f"What is the capital of country number {number}?") for number in range(count)]


def all_bytes(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in path.parent.iterdir() if each.is_file())


async def test_a_restart_brings_back_answers_and_vectors(
    start: Start, embedder: Embedder, ask: Ask, reply: Reply
) -> None:
    first = await start(embedder, similarity_threshold=0.85)
    asked, likewise = ask("How do I reset my password?", "p"), ask("How can I reset my password?", "p")
    answer = reply(asked, b'{"an": "answer"}')
    await first.admit(asked, answer, (await first.lookup(asked)).embedding)
    before = await first.lookup(likewise)
    await first.aclose()
    second = await start(embedder, similarity_threshold=0.85)
    exact, semantic = await second.lookup(asked), await second.lookup(likewise)
    assert (exact.outcome, exact.answer) == ("hit-exact", answer)
    assert (semantic.outcome, semantic.answer) == ("hit-semantic", answer)
    assert semantic.similarity == pytest.approx(before.similarity, abs=1e-4)
    assert (await second.lookup(ask("How can I reset my password?", "another partition"))).outcome == "miss"


async def test_what_is_stored_after_a_restart_is_added_to_what_was_there(start: Start, ask: Ask, reply: Reply) -> None:
    questions = several(ask, 30)
    for number in range(3):
        cache = await start()
        await fill(cache, questions[number * 10 : number * 10 + 10], reply)
        await cache.aclose()
    assert await outcomes(await start(), questions) == ["hit-exact"] * 30


async def test_another_embedders_vectors_stay_away_and_their_answers_are_found_by_key(
    start: Start, embedder: Embedder, ask: Ask, reply: Reply
) -> None:
    class Other:
        id, dimension = "other weights", embedder.dimension
        embed, fits = embedder.embed, embedder.fits

    asked, likewise = ask("How do I reset my password?"), ask("How can I reset my password?")
    first = await start(embedder, similarity_threshold=0.85)
    await first.admit(asked, reply(asked), (await first.lookup(asked)).embedding)
    await first.aclose()
    second = await start(Other(), similarity_threshold=0.85)  # type: ignore[arg-type]
    assert ((await second.lookup(asked)).outcome, (await second.lookup(likewise)).outcome) == ("hit-exact", "miss")
    assert second.stats().vectors == 0
    await second.aclose()
    third = await start(embedder, similarity_threshold=0.85)  # nothing was lost by the detour
    assert (await third.lookup(likewise)).outcome == "hit-semantic"


async def test_todays_options_apply_to_what_is_loaded_and_the_file_follows(
    start: Start, ask: Ask, reply: Reply, path: Path
) -> None:
    first = await start()
    old, new = ask("an old question"), several(ask, 20)
    await first.admit(old, reply(old, created_at=time.time() - 500), None)
    await fill(first, new, reply, b"x" * 100_000)
    await first.aclose()
    second = await start(ttl_s=400, max_mb=1)
    assert (await second.lookup(old)).outcome == "miss"
    assert await outcomes(second, new) == ["miss"] * 10 + ["hit-exact"] * 10  # the newest fit
    await second.aclose()
    third = await start()
    assert await outcomes(third, [old, *new]) == ["miss"] * 11 + ["hit-exact"] * 10


async def test_what_was_forgotten_does_not_come_back(start: Start, ask: Ask, reply: Reply) -> None:
    first = await start()
    questions = several(ask, 4)
    await fill(first, questions, reply)
    assert first.invalidate(questions[0].exact_key.hex())
    await fill(first, questions[1:2], reply, b"newer")
    await first.aclose()
    second = await start()
    assert await outcomes(second, questions) == ["miss"] + ["hit-exact"] * 3
    newer = (await second.lookup(questions[1])).answer
    assert newer is not None
    assert newer.body == b"newer"
    second.clear()
    await second.aclose()
    assert (await start()).stats().entries == 0


@pytest.mark.parametrize("size", [100, 3000, 50_000])
async def test_an_erased_owner_leaves_no_byte(start: Start, ask: Ask, reply: Reply, path: Path, size: int) -> None:
    """Small rows share pages and move between them, large ones overflow: either might leave copies behind."""
    first = await start()
    for number in range(200):
        owner, secret = ("acme", b"SECRET") if number % 2 else ("globex", b"public")
        question = msgspec.structs.replace(ask(f"{secret.decode()} question {number}"), owner=owner)
        await first.admit(question, reply(question, secret * (size // 6)), None)
        if number % 20 == 0:
            await first.settle()
    await first.settle()
    assert b"SECRET" in all_bytes(path)
    first.clear("acme")
    await first.settle()
    assert b"SECRET" not in all_bytes(path)
    assert b"public" in all_bytes(path)
    await first.aclose()
    assert (await start()).stats().entries == 100


async def test_an_invalidated_entry_leaves_the_file(start: Start, ask: Ask, reply: Reply, path: Path) -> None:
    cache = await start()
    await fill(cache, several(ask, 5), reply)
    question = ask("a SECRET question")
    await cache.admit(question, reply(question, entry_id="the one"), None)
    await cache.settle()
    assert b"SECRET" in all_bytes(path)
    cache.invalidate("the one")
    await cache.settle()
    assert b"SECRET" not in all_bytes(path)


async def test_nobody_else_can_read_it(start: Start, ask: Ask, reply: Reply, path: Path) -> None:
    cache = await start()
    await fill(cache, several(ask, 5), reply)
    await cache.settle()
    files = list(path.parent.iterdir())
    assert len(files) >= 3
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}


async def test_one_process_has_the_file_and_another_does_without(
    start: Start, ask: Ask, reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = await start(), await start()
    assert "in use by another process" in caplog.text
    one, other = several(ask, 2)
    await fill(first, [one], reply)
    await fill(second, [other], reply)
    assert await outcomes(second, [one, other]) == ["miss", "hit-exact"]
    await second.aclose()
    await first.aclose()
    assert await outcomes(await start(), [one, other]) == ["hit-exact", "miss"]


async def test_a_file_that_is_not_wanted_is_removed(start: Start, ask: Ask, reply: Reply, path: Path) -> None:
    first = await start()
    await fill(first, several(ask, 1), reply)
    assert await open_file(path, wanted=False) is None
    assert path.exists()  # somebody has it
    await first.aclose()
    assert await open_file(path, wanted=False) is None
    assert [each.name for each in path.parent.iterdir()] == ["cache.db.lock"]


async def test_the_file_shrinks_when_most_of_it_is_dead(
    start: Start, ask: Ask, reply: Reply, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = await start(max_mb=64)
    await fill(cache, several(ask, 200), reply, b"x" * 100_000)
    await cache.settle()
    full = path.stat().st_size
    cache.reconfigure(CacheOptions(max_mb=2))
    await cache.settle()
    await cache.aclose()  # the log is written back
    assert full > 20_000_000
    assert path.stat().st_size < 5_000_000


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


async def stored(start: Start, questions: list[Question], reply: Reply, body: bytes = b"") -> None:
    cache = await start()
    await fill(cache, questions, reply, body)
    await cache.aclose()


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
