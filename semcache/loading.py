"""Puts what outlived a process back on the shelf, under the options and the embedder of today. Knows no files."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from semcache.admission import entry_bytes, refusal
from semcache.shelf import Entry, Shelf
from semcache.types import CacheOptions

if TYPE_CHECKING:
    from semcache.store.record import Record
    from semcache.vector import Vectors

CODE_BYTES = 2  # of a component: IEEE half precision


@contextmanager
def without_collector() -> Iterator[None]:
    """A hundred thousand new objects are here to stay: looking for garbage among them takes a quarter of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def restore(
    shelf: Shelf,
    numbered: "list[tuple[int, Record]]",
    options: CacheOptions,
    now: float,
    embedder_id: str,
    dimension: int,
    forget: Callable[[int], None],
) -> None:
    """Oldest first. What is expired or too large by now is forgotten; another embedder's vectors are left out.

    `dimension` 0: no vectors are wanted.
    """
    entries: list[Entry] = []
    codes: list[bytes] = []
    for number, record in numbered:
        has_vector = dimension > 0 and record.embedder_id == embedder_id and _fits(record.codes, dimension)
        size = entry_bytes(record.question, record.answer, dimension if has_vector else 0)
        if refusal(record.answer, size, options, now) is not None:
            forget(number)
            continue
        entry = shelf.add(record.question, record.answer, size, number=number)
        if has_vector:
            entries.append(entry)
            codes.append(record.codes)
    if entries:
        _index(shelf, entries, codes, dimension, embedder_id)


def _fits(codes: bytes, dimension: int) -> bool:
    return len(codes) == CODE_BYTES * dimension


def _index(shelf: Shelf, entries: list[Entry], codes: list[bytes], dimension: int, embedder_id: str) -> None:
    """A vector that is none (not finite, not of length 1) is left out; its entry stays."""
    import numpy as np  # whoever gets here has vectors, and numpy with them

    vectors: Vectors = np.frombuffer(b"".join(codes), "<f2").astype(np.float32).reshape(-1, dimension)  # (n, d)
    lengths = np.linalg.norm(vectors, axis=1)  # (n,)
    sound = np.flatnonzero(np.abs(lengths - 1.0) < 1e-2)  # NaN is not below anything
    shelf.index([entries[row] for row in sound], vectors[sound], embedder_id)
