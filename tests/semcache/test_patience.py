import asyncio
import logging
from collections.abc import Sequence

import numpy as np
import pytest

from semcache import patience
from semcache.errors import EmbedderError
from semcache.patience import PatientEmbedder

pytestmark = pytest.mark.anyio


class Moody:
    """An embedder that works, hangs or fails as told."""

    id = "moody"
    dimension = 4

    def __init__(self) -> None:
        self.mood = "works"
        self.num_calls = 0

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.num_calls += 1
        if self.mood == "hangs":
            await asyncio.sleep(60)
        if self.mood == "fails":
            raise EmbedderError("broken")
        return np.eye(4, dtype=np.float32)[: len(texts)]

    def fits(self, text: str) -> bool:
        return True


async def test_a_vector_comes_through() -> None:
    vector = await PatientEmbedder(Moody()).embed("text", 1.0)
    assert not isinstance(vector, str)
    assert vector.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(("mood", "reason"), [("hangs", "embedder-timeout"), ("fails", "embedder-error")])
async def test_a_bad_embedder_is_left_alone_and_tried_again(
    mood: str, reason: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "REST_S", 10.0)
    caplog.set_level(logging.WARNING)
    now = 0.0
    moody = Moody()
    moody.mood = mood
    patient = PatientEmbedder(moody, clock=lambda: now)
    assert [await patient.embed("text", 0.01) for _ in range(5)] == [reason] * 3 + ["embedder-resting"] * 2
    assert moody.num_calls == 3
    now = 11.0
    assert await patient.embed("text", 0.01) == reason  # the probe
    assert await patient.embed("text", 0.01) == "embedder-resting"
    moody.mood, now = "works", 22.0
    assert not isinstance(await patient.embed("text", 0.01), str)
    assert not isinstance(await patient.embed("text", 0.01), str)
    assert patient.num_failures == 4
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "fails" in said[0]
    assert "back" in said[1]


async def test_a_caller_that_leaves_is_no_failure() -> None:
    moody = Moody()
    moody.mood = "hangs"
    patient = PatientEmbedder(moody)
    call = asyncio.create_task(patient.embed("text", 30.0))
    await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert patient.num_failures == 0
