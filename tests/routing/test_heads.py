"""Heads fit one embedder, say so when it is another, and judge without one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from routing.cues import TASKS
from routing.errors import HeadMismatch
from routing.heads import Heads, Meta, load, load_shipped
from routing.signals import FEATURES, extract

HeadsOf = Callable[..., Heads]


def test_probabilities_follow_the_logits(heads_of: HeadsOf) -> None:
    judgement = heads_of(weak=0.3, strong=0.8, sharpness=2.0).judge(extract("x"), np.array([0, 1, 0, 0], np.float32))
    assert judgement.task == "code"
    assert judgement.confidence == pytest.approx(np.exp(2) / (np.exp(2) + 2), rel=1e-5)
    assert (judgement.weak_right, judgement.strong_right) == pytest.approx((0.3, 0.8), rel=1e-5)
    assert judgement.used_embedding


def test_the_strong_model_is_never_below_the_weak_one(heads_of: HeadsOf) -> None:
    judgement = heads_of(weak=0.8, strong=0.3).judge(extract("x"), None)
    assert judgement.strong_right == judgement.weak_right == pytest.approx(0.8, rel=1e-5)


def test_without_an_embedding_the_features_decide(shipped: Heads) -> None:
    judgement = shipped.judge(extract("Write a Python function that reverses a list:\n```python\n```"), None)
    assert judgement.task == "code"
    assert not judgement.used_embedding


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 0.0, 0.5, 1.5, 3e38])
def test_an_embedding_that_is_not_finite_or_not_normalised_counts_as_none(heads_of: HeadsOf, bad: float) -> None:
    judgement = heads_of().judge(extract("x"), np.array([bad, 0, 0, 0], np.float32))
    assert not judgement.used_embedding
    assert np.isfinite(judgement.confidence)


def test_a_vector_of_another_length_is_refused(heads_of: HeadsOf) -> None:
    with pytest.raises(HeadMismatch, match="reads 4 dimensions"):
        heads_of().judge(extract("x"), np.zeros(384, np.float32))


def test_another_embedder_is_refused_with_the_remedy(heads_of: HeadsOf, tmp_path: Path) -> None:
    heads_of().save(tmp_path / "heads.npz")
    with pytest.raises(HeadMismatch, match=r"trained for toy, 4-d, .* is other: .*tollhouse route train"):
        load(tmp_path / "heads.npz", "other")


def test_without_an_embedder_no_vector_is_read(heads_of: HeadsOf, tmp_path: Path) -> None:
    heads_of().save(tmp_path / "heads.npz")
    heads = load(tmp_path / "heads.npz", None)
    assert not heads.judge(extract("x"), np.zeros(768, np.float32)).used_embedding


def test_saved_heads_come_back_equal_and_the_file_is_stable(heads_of: HeadsOf, tmp_path: Path) -> None:
    for name in ("a", "b"):
        heads_of().save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    loaded = load(tmp_path / "a", "toy")
    vector = np.array([0.1, 0.5, 0.7, 0.5], np.float32)
    assert loaded.meta == heads_of().meta
    assert loaded.judge(extract("one"), vector) == heads_of().judge(extract("one"), vector)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"plain text"])
def test_a_broken_file_is_a_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "heads.npz"
    path.write_bytes(content)
    with pytest.raises(HeadMismatch, match="not a head that this version can read"):
        load(path, None)
    with pytest.raises(HeadMismatch, match="not a head"):
        load(tmp_path / "absent.npz", None)


def test_heads_of_other_features_are_refused(heads_of: HeadsOf) -> None:
    meta = heads_of().meta
    stale = Meta(embedder_id="toy", dimension=4, tasks=meta.tasks, features=FEATURES[:-1], data="", command="", seed=0)
    width = len(meta.tasks) + 2
    full = np.zeros((4 + len(FEATURES), width), np.float32)
    with pytest.raises(HeadMismatch, match="train it again"):
        Heads(stale, full, np.zeros((len(FEATURES), width), np.float32), np.zeros((2, len(FEATURES) - 1), np.float32))


def test_texts_in_other_scripts_are_not_judged_with_confidence(shipped: Heads) -> None:
    for text in ("Привет, как дела?", "帮我写一首诗", "اكتب لي قصيدة"):
        assert shipped.judge(extract(text), None).confidence < 0.05
    assert shipped.judge(extract("Schreib ein Gedicht über die Straße"), None).confidence > 0.05


def test_features_beyond_the_training_data_are_taken_for_its_edge(shipped: Heads) -> None:
    lone, absurd = (shipped.judge(extract("9 " * count), None) for count in (20_000, 2_000_000))
    assert lone.weak_right == pytest.approx(absurd.weak_right, abs=1e-6)


def test_the_shipped_heads_know_where_they_come_from(minilm_path: Path) -> None:
    from semcache.sentence_model import weights_id

    meta = load_shipped(weights_id(minilm_path)).meta
    assert meta.dimension == 384
    assert set(meta.tasks) == set(TASKS)
    assert meta.command.startswith("tollhouse route train")
    assert len(meta.data) == 32
