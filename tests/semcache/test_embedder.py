import asyncio
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from semcache.embedder import Embedder
from semcache.errors import EmbedderError
from semcache.sentence_model import SentenceModel

pytestmark = pytest.mark.anyio


@pytest.fixture
def batches(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the model was given, run by run; a text "bad" fails, a text "slow" takes its time."""
    seen: list[list[str]] = []
    encode = embedder.model.encode

    def watched(texts: list[str]) -> np.ndarray:
        seen.append(list(texts))
        if "bad" in texts:
            raise RuntimeError("out of cheese")
        if "slow" in texts:
            time.sleep(0.1)
        return encode(texts)

    monkeypatch.setattr(embedder.model, "encode", watched)
    return seen


async def test_one_text_is_what_the_model_says(embedder: Embedder, sentence_model: SentenceModel) -> None:
    vectors = await embedder.embed(["hello there"])
    assert vectors.dtype == np.float32
    assert vectors == pytest.approx(sentence_model.encode(["hello there"]), abs=1e-6)
    assert embedder.dimension == 384
    assert embedder.id == sentence_model.id


async def test_concurrent_callers_share_runs_and_get_their_own_rows(
    embedder: Embedder, batches: list[list[str]], sentence_model: SentenceModel
) -> None:
    texts = [f"question number {number}" for number in range(50)]
    rows = await asyncio.gather(*(embedder.embed([text]) for text in texts))
    assert len(batches) <= 4
    assert max(map(len, batches)) <= 32
    assert (np.concatenate(rows) * sentence_model.encode(texts)).sum(axis=1).min() > 0.999


async def test_a_lone_caller_does_not_wait_for_company(minilm_path: Path) -> None:
    embedder = Embedder(minilm_path, max_wait_ms=500)
    await embedder.start()
    started = time.perf_counter()
    for _ in range(3):
        await embedder.embed(["hello"])
    assert time.perf_counter() - started < 0.5
    await embedder.aclose()


async def test_after_company_a_batch_waits_for_more(minilm_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = Embedder(minilm_path, max_wait_ms=200, max_batch_size=3)
    await embedder.start()
    sizes: list[int] = []
    encode = embedder.model.encode
    monkeypatch.setattr(embedder.model, "encode", lambda texts: (sizes.append(len(texts)), encode(texts))[1])
    await asyncio.gather(embedder.embed(["a"]), embedder.embed(["b"]))
    early = asyncio.create_task(embedder.embed(["c"]))
    await asyncio.sleep(0.05)
    await asyncio.gather(early, embedder.embed(["d"]), embedder.embed(["e"]))
    assert sizes == [2, 3]
    await embedder.aclose()


async def test_others_come_in_between_the_pieces_of_a_long_list(embedder: Embedder, batches: list[list[str]]) -> None:
    long = asyncio.create_task(embedder.embed([f"row {number}" for number in range(100)]))
    await asyncio.sleep(0.005)
    await embedder.embed(["short"])
    assert not long.done()
    assert (await long).shape == (100, 384)


async def test_no_texts_are_no_work(embedder: Embedder, batches: list[list[str]]) -> None:
    assert (await embedder.embed([])).shape == (0, 384)
    assert batches == []


async def test_the_event_loop_runs_on_while_the_model_works(embedder: Embedder) -> None:
    work = asyncio.create_task(embedder.embed(["some words " * 100] * 32))
    ticks = 0
    while not work.done():
        await asyncio.sleep(0.001)
        ticks += 1
    assert ticks > 10


async def test_a_text_that_fails_fails_alone(embedder: Embedder, batches: list[list[str]]) -> None:
    good, bad, also_good = await asyncio.gather(
        embedder.embed(["good"]), embedder.embed(["bad"]), embedder.embed(["also good"]), return_exceptions=True
    )
    assert isinstance(bad, EmbedderError)
    assert "out of cheese" in str(bad)
    assert isinstance(good, np.ndarray)
    assert isinstance(also_good, np.ndarray)
    assert (await embedder.embed(["afterwards"])).shape == (1, 384)


async def test_a_cancelled_caller_is_left_out_of_the_next_batch(embedder: Embedder, batches: list[list[str]]) -> None:
    slow = asyncio.create_task(embedder.embed(["slow"]))
    await asyncio.sleep(0.02)
    leaving = asyncio.create_task(embedder.embed(["leaving"]))
    staying = asyncio.create_task(embedder.embed(["staying"]))
    await asyncio.sleep(0.02)
    leaving.cancel()
    assert (await staying).shape == (1, 384)
    await slow
    assert batches == [["slow"], ["staying"]]


async def test_closing_fails_those_who_wait(embedder: Embedder, batches: list[list[str]]) -> None:
    running = asyncio.create_task(embedder.embed(["slow"]))
    await asyncio.sleep(0.02)
    waiting = asyncio.create_task(embedder.embed(["waiting"]))
    await asyncio.sleep(0.02)
    await embedder.aclose()
    await embedder.aclose()
    for task in (running, waiting):
        with pytest.raises(EmbedderError, match="stopped"):
            await task
    with pytest.raises(EmbedderError, match="not running"):
        await embedder.embed(["late"])


async def test_closing_fails_those_whose_batch_is_being_redone_one_by_one(
    embedder: Embedder, batches: list[list[str]]
) -> None:
    first = asyncio.create_task(embedder.embed(["slow"]))
    await asyncio.sleep(0.02)
    together = [asyncio.create_task(embedder.embed([text])) for text in ("slow", "bad", "fine", "also fine")]
    async with asyncio.timeout(5):
        while ["slow"] not in batches[1:]:  # the batch of four has failed, and its first text is run alone
            await asyncio.sleep(0.005)
        await embedder.aclose()
        results = await asyncio.gather(*together, return_exceptions=True)
    assert (await first).shape == (1, 384)
    assert all(isinstance(result, EmbedderError) and "stopped" in str(result) for result in results)


async def test_a_missing_model_is_said_at_the_start(tmp_path: Path) -> None:
    embedder = Embedder(tmp_path / "nowhere")
    with pytest.raises(EmbedderError, match="no sentence-transformers model"):
        await embedder.start()
    with pytest.raises(EmbedderError, match="not running"):
        _ = embedder.id


async def test_one_text_instead_of_a_list_is_refused(embedder: Embedder) -> None:
    with pytest.raises(EmbedderError, match="list of texts"):
        await embedder.embed("hello")


async def test_torch_keeps_its_threads(embedder: Embedder) -> None:
    """The embedder restricts its own thread, not the process: the engine needs the cores."""
    import torch

    before = torch.get_num_threads()
    await embedder.embed(["hello"])
    assert torch.get_num_threads() == before


def test_importing_the_cache_imports_no_heavy_module() -> None:
    code = (
        "import sys, semcache.cache, semcache.embedder, semcache.store.redis;"
        "heavy = ('torch', 'faiss', 'sentence_transformers', 'transformers', 'redis');"
        "print([name for name in heavy if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_exact_repeats_need_no_numpy() -> None:
    code = "import sys, semcache.cache, semcache.store.redis; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
