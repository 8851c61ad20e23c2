"""Training repeats itself, says what it is worth, and refuses data that it can't learn from."""

import csv
import gzip
import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from routing.dataset import SHIPPED, fingerprint, read_difficulty, read_tasks
from routing.errors import TrainingError
from routing.heads import Heads, load, load_shipped
from routing.report import Report
from routing.signals import extract
from routing.train import Embed, train

DIMENSION = 64


def embed_trigrams(texts: list[str]) -> npt.NDArray[np.float32]:
    """A bag of hashed character trigrams, normalised: a cheap embedding that does carry the words."""
    vectors = np.full((len(texts), DIMENSION), 1e-3, np.float32)
    for vector, text in zip(vectors, texts, strict=True):
        for at in range(min(len(text), 400) - 2):
            vector[hashlib.blake2b(text[at : at + 3].lower().encode(), digest_size=1).digest()[0] % DIMENSION] += 1
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def fit(folder: Path, out: Path | None = None, embed: Embed = embed_trigrams) -> Report:
    return train(folder, embed, 0, out, embedder_id="trigrams", command="test")


def write(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    path.write_bytes(gzip.compress(text.getvalue().encode()))


def read(name: str) -> tuple[list[str], list[list[str]]]:
    rows = list(csv.reader(io.StringIO(gzip.decompress((SHIPPED / name).read_bytes()).decode())))
    return rows[0], rows[1:]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A quarter of the shipped data."""
    for name in ("tasks.csv.gz", "difficulty.csv.gz", "passages.csv.gz"):
        header, rows = read(name)
        write(tmp_path / name, header, rows[::4])
    return tmp_path


def test_the_same_data_and_seed_give_the_same_file(folder: Path) -> None:
    files = [folder / "first.npz", folder / "second.npz"]
    reports = [fit(folder, file) for file in files]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert reports[0] == reports[1]
    heads = load(files[0], "trigrams")
    assert heads.meta.data == fingerprint(folder)
    assert (heads.meta.dimension, heads.meta.seed, heads.meta.command) == (DIMENSION, 0, "test")


def test_what_is_learned_holds_on_unseen_rows_and_is_reported(folder: Path) -> None:
    lines: list[str] = []
    report = train(folder, embed_trigrams, 1, None, embedder_id="trigrams", echo=lines.append)
    value, low, high = report.macro_f1
    assert low < value < high
    assert low > 0.3  # twelve classes: guessing the largest gives 0.03
    assert report.calibration_error < 0.2
    assert set(report.apgr) == {"mmlu", "gsm8k"}
    assert sum(score.rows for score in report.per_class) == sum(row.held_out for row in read_tasks(folder))
    printed = "\n".join(lines)
    assert f"{value:.3f} [{low:.3f}, {high:.3f}]" in printed
    assert all(score.task in printed for score in report.per_class)


def test_a_held_out_row_is_never_learned_from(folder: Path) -> None:
    before, after = folder / "before.npz", folder / "after.npz"
    fit(folder, before)
    header, rows = read("tasks.csv.gz")
    unseen = {row.text for row in read_tasks(folder) if row.held_out}
    write(folder / "tasks.csv.gz", header, [[t, "code" if t in unseen else c, s] for t, c, s in rows[::4]])
    with pytest.raises(TrainingError, match="0 held out"):
        fit(folder, after)
    flipped = [[t, {"code": "maths", "maths": "code"}.get(c, c) if t in unseen else c, s] for t, c, s in rows[::4]]
    write(folder / "tasks.csv.gz", header, flipped)
    fit(folder, after)
    vector = embed_trigrams(["def f(x): return x"])[0]
    features = extract("def f(x): return x")
    assert load(before, "trigrams").judge(features, vector) == load(after, "trigrams").judge(features, vector)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least two tasks"),
        ([["text", "chat", "x"]] * 9, "at least two tasks"),
        ([[f"text {i}", ("chat", "code")[i % 2], "x"] for i in range(20)], "rows to learn from"),
        ([["text", "", "x"]], "row 2: needs 3 filled columns"),
        ([["text", "chat"]], "row 2: needs 3 filled columns"),
    ],
)
def test_too_few_or_malformed_rows_are_refused(folder: Path, rows: list[list[str]], message: str) -> None:
    write(folder / "tasks.csv.gz", ["text", "task", "source"], rows)
    with pytest.raises(TrainingError, match=message):
        fit(folder, folder / "out.npz")
    assert not (folder / "out.npz").exists()


def test_unreadable_or_foreign_files_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"tasks\.csv\.gz: cannot be read"):
        fit(tmp_path / "nowhere")
    write(folder / "tasks.csv.gz", ["prompt", "label"], [["a", "b"]])
    with pytest.raises(TrainingError, match="the columns must be text, task, source, not prompt, label"):
        fit(folder)


def test_grades_must_be_zero_or_one_and_differ(folder: Path) -> None:
    header, rows = read("difficulty.csv.gz")
    write(folder / "difficulty.csv.gz", header, [[t, "yes", s, source] for t, _, s, source in rows[:300]])
    with pytest.raises(TrainingError, match="must be 0 or 1, not 'yes'"):
        fit(folder)
    write(folder / "difficulty.csv.gz", header, [[t, "1", s, source] for t, _, s, source in rows[:300]])
    with pytest.raises(TrainingError, match="weak_right is the same in every row"):
        fit(folder)
    write(folder / "difficulty.csv.gz", header, rows[:100])
    with pytest.raises(TrainingError, match="100 graded questions; at least 200"):
        fit(folder)


@pytest.mark.parametrize("shape", [(3, 4), (0, 4), (7,)])
def test_an_embedder_that_loses_texts_is_refused(folder: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(TrainingError, match="the embedder gave"):
        fit(folder, embed=lambda texts: np.zeros(shape, np.float32))


def test_variants_of_one_text_are_in_the_same_fold() -> None:
    folds: dict[str, set[int]] = {}
    for row in [*read_tasks(SHIPPED), *read_difficulty(SHIPPED)]:
        if not getattr(row, "with_passage", False):
            folds.setdefault(row.text[:80], set()).add(row.fold)
    assert all(len(of_group) == 1 for of_group in folds.values())
    assert set().union(*folds.values()) == {0, 1, 2, 3, 4}


def test_every_source_has_its_notice() -> None:
    notices = (SHIPPED / "LICENSES.md").read_text()
    sources = {row.source for row in [*read_tasks(SHIPPED), *read_difficulty(SHIPPED)]}
    assert [source for source in sorted(sources) if f"`{source}`" not in notices] == []


def test_the_shipped_heads_belong_to_the_shipped_data() -> None:
    assert load_shipped(None).meta.data == fingerprint(SHIPPED)
    assert {row.task for row in read_tasks(SHIPPED)} == set(load_shipped(None).tasks)
    assert len(read_difficulty(SHIPPED)) > 5_000


def test_the_shipped_heads_keep_their_promise_with_the_real_embedder(minilm_path: Path) -> None:
    """A sample of the held-out prompts, embedded for real: as good as the file says, and better than the cues alone."""
    from semcache.sentence_model import SentenceModel

    model = SentenceModel(minilm_path)
    heads: Heads = load_shipped(model.id)
    rows = [row for row in read_tasks(SHIPPED) if row.held_out and len(row.text) < 200][::10]
    rows.sort(key=lambda row: len(row.text))
    vectors = np.vstack([model.encode([row.text for row in rows[at : at + 16]]) for at in range(0, len(rows), 16)])
    judged = [heads.judge(extract(row.text), vector) for row, vector in zip(rows, vectors, strict=True)]
    right = np.mean([judgement.task == row.task for judgement, row in zip(judged, rows, strict=True)])
    assert all(judgement.used_embedding for judgement in judged)
    assert right > heads.meta.measured["macro_f1"] - 0.1
    assert heads.meta.measured["macro_f1"] > heads.meta.measured["macro_f1_without_embedding"] + 0.05
