"""Weights and cache lie on huge pages where the system has them, and no two takers share a byte."""

from pathlib import Path

import pytest
import torch

from kernels.cpu.attention import new_cache
from kernels.cpu.memory import WeightMemory, huge_pages
from kernels.operations import HeadShape

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def bytes_on_huge_pages(address: int) -> int:
    """Of the mapping that has this address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, *words = line.split()
        if not key.endswith(":"):
            start, end = (int(part, 16) for part in key.split("-"))
            inside = start <= address < end
        elif inside and key == "AnonHugePages:":
            return int(words[0]) * 1024
    raise AssertionError("no such mapping")


@pytest.mark.skipif(
    not SETTING.exists() or "[never]" in SETTING.read_text(), reason="this system has no transparent huge pages"
)
def test_memory_that_is_written_to_lies_on_huge_pages() -> None:
    weights = WeightMemory().take(20 << 20).fill_(1)
    (pages,) = new_cache(1, 1000, HeadShape(8, 8, 128), "auto").layers[0]
    for memory in (weights, pages.fill_(1)):
        assert bytes_on_huge_pages(memory.data_ptr() + memory.nbytes // 2) > 0


def test_takers_share_no_byte() -> None:
    memory = WeightMemory()
    taken = [memory.take(size).fill_(i) for i, size in enumerate((1, 64, 65, 40 << 20, 1000, 31 << 20, 3 << 20))]
    assert all(bool((each == i).all()) for i, each in enumerate(taken))
    assert all(each.data_ptr() % 64 == 0 for each in taken)


def test_it_begins_with_zeros_and_is_as_large_as_asked_for() -> None:
    memory = huge_pages((2 << 20) + 5)
    assert memory.shape == ((2 << 20) + 5,)
    assert not memory.any()
    assert memory.dtype == torch.uint8
