"""Blocks of host memory, for the KV of sequences that were preempted. Knows block numbers only, no memory."""

from collections.abc import Iterable


class HostBlocks:
    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def allocate(self) -> int:
        """The caller has checked `num_free`."""
        return self._free.pop()

    def release(self, block_ids: Iterable[int]) -> None:
        self._free.extend(block_ids)

    def check_integrity(self, tables: Iterable[list[int]]) -> None:
        """Assert that each block is free or in exactly one of the tables."""
        held = [block_id for table in tables for block_id in table]
        assert sorted(held + self._free) == list(range(self.num_blocks)), "host blocks are lost or held twice"
