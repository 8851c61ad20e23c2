"""What a restart brings back, and that nothing is left of what was erased."""

import stat
import time
from pathlib import Path

import msgspec
import pytest

from semcache.embedder import Embedder
from semcache.store.opening import open_file
from semcache.types import CacheOptions
from tests.semcache.cache_file.conftest import Start, all_bytes, fill, outcomes, several
from tests.semcache.conftest import Ask, Reply

pytestmark = pytest.mark.anyio


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
