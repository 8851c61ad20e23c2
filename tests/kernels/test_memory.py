"""The memory that weights and the KV cache lie in."""

import itertools
import re
from pathlib import Path

import pytest

from kernels.cpu.attention import new_cache
from kernels.cpu.memory import WeightMemory, huge_pages
from kernels.operations import HeadShape

_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_HUGE_PAGE = 2 << 20


def _huge_bytes_around(address: int) -> int:
    """In huge pages, of the mapping that holds this address."""
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if borders := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            found = int(borders[1], 16) <= address < int(borders[2], 16)
        elif found and line.startswith("AnonHugePages:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no such mapping")


def test_what_is_taken_is_aligned_and_overlaps_nothing() -> None:
    memory = WeightMemory()
    taken = [memory.take(size) for size in (1, 64, 100, 1 << 20, 40 << 20, 7)]
    assert [len(each) for each in taken] == [1, 64, 100, 1 << 20, 40 << 20, 7]
    assert all(each.data_ptr() % 64 == 0 for each in taken)
    places = sorted((each.data_ptr(), each.data_ptr() + len(each)) for each in taken)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(places))


@pytest.mark.skipif(
    not _SETTING.exists() or "[never]" in _SETTING.read_text(), reason="this system has no transparent huge pages"
)
def test_weights_and_cache_lie_on_huge_pages() -> None:
    weights = WeightMemory().take(16 * _HUGE_PAGE)
    (pages,) = new_cache(1, 512, HeadShape(8, 8, 128), "auto").layers[0]
    for memory in (weights, pages):
        memory.fill_(1)
        # Only some of it, if the system is short of free ones.
        assert _huge_bytes_around(memory.data_ptr() + memory.nbytes // 2) >= 8 * _HUGE_PAGE


def test_it_is_as_large_as_asked_for_and_begins_with_zeros() -> None:
    memory = huge_pages(_HUGE_PAGE + 5)
    assert memory.shape == (_HUGE_PAGE + 5,)
    assert not memory.any()
