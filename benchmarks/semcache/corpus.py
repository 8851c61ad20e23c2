"""Questions with known answers, embedded once: two questions of one intent have the same answer.

Intents fall into a design half and a held-out half by a digest of their names, so that what is tuned on the one is
judged on the other, on every machine alike.
"""

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

DATA = Path(__file__).parent / "data"
BATCH = 64

Part = Literal["design", "held-out", "all"]


class Corpus(NamedTuple):
    """n questions; no text twice."""

    texts: list[str]
    intents: npt.NDArray[np.int64]  # (n,)
    vectors: npt.NDArray[np.float32]  # (n, d), each row of length 1


def load(name: str, part: Part, model: Path, cache: Path) -> Corpus:
    """ "banking77" or "clinc150" (the training part of each), or the half of it that `part` says."""
    rows = list(dict(_READERS[name]()).items())
    texts = [text for text, _ in rows]
    intents = sorted({intent for _, intent in rows})
    labels = np.array([intents.index(intent) for _, intent in rows])
    vectors = _embedded(texts, model, cache / f"{name}.npy")
    kept = [at for at, (_, intent) in enumerate(rows) if part in ("all", half(intent))]
    return Corpus([texts[at] for at in kept], labels[kept], vectors[kept])


def half(intent: str) -> Part:
    return "design" if hashlib.sha256(intent.encode()).digest()[0] % 2 else "held-out"


def _banking77() -> Iterator[tuple[str, str]]:
    with gzip.open(DATA / "banking77.csv.gz", "rt", encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(io.StringIO(lines.read())):
            yield row["text"].strip(), row["category"]


def _clinc150() -> Iterator[tuple[str, str]]:
    with gzip.open(DATA / "clinc150.json.gz", "rt", encoding="utf-8") as file:
        splits = json.load(file)
    yield from ((text, intent) for text, intent in splits["train"])


_READERS = {"banking77": _banking77, "clinc150": _clinc150}


def _embedded(texts: list[str], model: Path, cached: Path) -> npt.NDArray[np.float32]:
    """(n, d) from the file, or computed and written there."""
    if cached.exists():
        vectors: npt.NDArray[np.float32] = np.load(cached)
        if len(vectors) == len(texts):
            return vectors
    from semcache.sentence_model import SentenceModel  # torch comes with it

    sentences = SentenceModel(model)
    by_length = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    vectors = np.empty((len(texts), sentences.dimension), np.float32)
    for start in range(0, len(texts), BATCH):
        batch = by_length[start : start + BATCH]
        vectors[batch] = sentences.encode([texts[at] for at in batch])
    cached.parent.mkdir(parents=True, exist_ok=True)
    np.save(cached, vectors)
    return vectors
