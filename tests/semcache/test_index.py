import os
import subprocess
import sys

import numpy as np
import pytest

from semcache.errors import CacheError
from semcache.index import VectorIndex
from semcache.vector import Vector

D = 32


def unit(n: int, seed: int = 0, d: int = D) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def filled(vectors: np.ndarray, partition: bytes = b"p") -> VectorIndex:
    index = VectorIndex("e", vectors.shape[1])
    for number, vector in enumerate(vectors):
        index.add(number, partition, vector)
    return index


def numbers(index: VectorIndex, vector: Vector, k: int = 1, partition: bytes = b"p") -> list[int]:
    return [neighbour.number for neighbour in index.search(partition, vector, k)]


def test_neighbours_are_those_of_an_exhaustive_search() -> None:
    vectors, queries = unit(500), unit(20, seed=1)
    index = filled(vectors)
    for query in queries:
        exact = vectors @ query
        found = index.search(b"p", query, 8)
        assert [neighbour.number for neighbour in found] == np.argsort(-exact)[:8].tolist()
        assert [neighbour.similarity for neighbour in found] == pytest.approx(
            np.sort(exact)[::-1][:8].tolist(), abs=1e-3
        )


def test_a_partition_never_sees_anothers_vectors() -> None:
    vectors = unit(40)
    index = VectorIndex("e", D)
    for number, vector in enumerate(vectors):
        index.add(number, b"a" if number % 2 else b"b", vector)
    assert set(numbers(index, vectors[0], 40, b"a")) == set(range(1, 40, 2))
    assert numbers(index, vectors[0], 40, b"c") == []
    assert index.num_partitions == 2


def test_removed_entries_are_never_found_and_the_others_always() -> None:
    """Also after every row has been moved about: no ghosts, no losses (faiss #1415)."""
    vectors = unit(600)
    index = filled(vectors)
    order = np.random.default_rng(5).permutation(600).tolist()
    for step, number in enumerate(order[:550]):
        assert index.remove(number)
        assert not index.remove(number)
        if step % 50 == 0:
            alive = set(order[step + 1 :])
            assert {neighbour.number for neighbour in index.search(b"p", vectors[number], 600)} == alive
            assert all(numbers(index, vectors[other]) == [other] for other in list(alive)[:20])
    assert len(index) == 50


def test_an_empty_partition_is_gone() -> None:
    index = filled(unit(3))
    for number in range(3):
        index.remove(number)
    assert index.num_partitions == 0
    assert numbers(index, unit(1)[0]) == []


SHRINKING = """
import gc, numpy, psutil
from semcache.index import VectorIndex
rng = numpy.random.default_rng(0)
index = VectorIndex("e", 384)
for number in range(60_000):
    vector = rng.standard_normal(384, dtype=numpy.float32)
    index.add(number, b"p", vector / numpy.linalg.norm(vector))
gc.collect()
before, held = psutil.Process().memory_info().rss, index.code_bytes
for number in range(55_000):
    index.remove(number)
gc.collect()
assert index.code_bytes < held / 4
print(before - psutil.Process().memory_info().rss)
"""


def test_memory_falls_after_most_of_a_partition_was_removed() -> None:
    """In a process of its own, whose allocator gives large blocks back at once: room in the heap hides it."""
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    command = [sys.executable, "-c", SHRINKING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20e6  # of the 46 MB of codes


@pytest.mark.parametrize(
    ("vector", "says"),
    [
        (np.ones(D, np.float32), "length 1"),
        (np.full(D, np.nan, np.float32), "finite"),
        (unit(1, d=D + 1)[0], "shape"),
        (unit(1), "shape"),
    ],
)
def test_a_vector_that_cannot_be_is_refused(vector: np.ndarray, says: str) -> None:
    index = VectorIndex("e", D)
    with pytest.raises(CacheError, match=says):
        index.add(0, b"p", vector)
    assert len(index) == 0
    assert index.num_partitions == 0


def test_without_faiss_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(CacheError, match=r"tollhouse\[cpu\]"):
        VectorIndex("e", D)
