"""The labelled prompts that the shipped heads are trained on: read, checked, split. Knows nothing of models or heads.

Rows fall into five folds by a digest of how their text begins, so the split is the same in every run and on every
machine, and texts made from one template are in the same fold. Fold 0 is held out; fold 1 calibrates what the others
have taught.
"""

import csv
import gzip
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import msgspec

from routing.errors import TrainingError

SHIPPED = Path(__file__).parent / "data"
GROUP_CHARS = 80  # texts that share this many characters are variants of each other
CONTEXTUAL = frozenset({"classification", "closed_qa", "information_extraction", "summarization"})


class TaskRow(msgspec.Struct, frozen=True):
    """A prompt and what kind of work it asks for."""

    text: str
    task: str
    source: str
    fold: int  # 0 to 4; a prompt and its copy with a passage are in the same one
    with_passage: bool = False

    @property
    def held_out(self) -> bool:
        return self.fold == 0


class DifficultyRow(msgspec.Struct, frozen=True):
    """An exam question and whether a weak and a strong model answered it correctly."""

    text: str
    weak_right: bool
    strong_right: bool
    source: str
    fold: int

    @property
    def held_out(self) -> bool:
        return self.fold == 0


def read_tasks(folder: Path) -> list[TaskRow]:
    """Rows of `tasks.csv.gz`, then copies of the contextual ones with a passage attached. Raises TrainingError.

    Dolly's instructions came without the text they speak of, while real requests to summarise or extract carry it;
    the copies teach that a long text beside an instruction says nothing about the task.
    """
    columns = ("text", "task", "source")
    lines = _read(folder / "tasks.csv.gz", columns)
    rows = [TaskRow(text, task, source, _fold(text)) for text, task, source in lines]
    path = folder / "passages.csv.gz"
    passages = [text for (text,) in _read(path, ("text",))] if path.exists() else []
    if passages:
        rows += [_attach(row, passages) for row in rows if row.task in CONTEXTUAL]
    return rows


def read_difficulty(folder: Path) -> list[DifficultyRow]:
    """Rows of `difficulty.csv.gz`. Raises TrainingError."""
    columns = ("text", "weak_right", "strong_right", "source")
    path = folder / "difficulty.csv.gz"
    rows = []
    for text, weak, strong, source in _read(path, columns):
        if weak not in "01" or strong not in "01":
            raise TrainingError(f"{path}: weak_right and strong_right must be 0 or 1, not {weak!r} and {strong!r}")
        rows.append(DifficultyRow(text, weak == "1", strong == "1", source, _fold(text)))
    return rows


def fingerprint(folder: Path) -> str:
    """Names the data: a digest of every file's uncompressed bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.glob("*.csv.gz")):
        digest.update(path.name.encode() + b"\0" + gzip.decompress(path.read_bytes()))
    return digest.hexdigest()


def _fold(text: str) -> int:
    return _digest(text[:GROUP_CHARS]) % 5


def _attach(row: TaskRow, passages: list[str]) -> TaskRow:
    number = _digest(row.text)
    passage = passages[number // 5 % len(passages)]
    first_line = row.text.replace("\n", " ")
    text = f"{first_line}\n\n{passage}" if number // 5000 % 2 else f"{passage}\n\n{first_line}"
    return TaskRow(text, row.task, row.source, row.fold, with_passage=True)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).digest(), "big")


def _read(path: Path, columns: tuple[str, ...]) -> Iterator[list[str]]:
    try:
        text = gzip.decompress(path.read_bytes()).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TrainingError(f"{path}: cannot be read: {error}") from error
    rows = csv.reader(io.StringIO(text))
    if (header := tuple(next(rows, ()))) != columns:
        raise TrainingError(f"{path}: the columns must be {', '.join(columns)}, not {', '.join(header) or 'none'}")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(columns) or not all(row):
            raise TrainingError(f"{path}, row {number}: needs {len(columns)} filled columns")
        yield row
