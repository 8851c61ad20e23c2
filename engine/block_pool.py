"""Who holds which KV block: reference counts and one free list. Knows no tokens and no memory, only block numbers."""

from collections import Counter, OrderedDict
from collections.abc import Iterable

from engine.prefix_cache import PrefixCache


class BlockPool:
    """`num_blocks` blocks. A free block may still be cached: it is evicted when it is allocated anew.

    The free list is in the order of allocation: blocks with no cached content at the front, then the cached ones from
    the least to the most recently released.
    """

    def __init__(self, num_blocks: int, cache: PrefixCache) -> None:
        assert num_blocks > 0, "a pool needs at least one block"
        self.num_blocks = num_blocks
        self._cache = cache
        self._references = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def is_free(self, block_id: int) -> bool:
        return self._references[block_id] == 0

    def num_holders(self, block_id: int) -> int:
        return self._references[block_id]

    def allocate(self) -> int:
        """A block to write to; what was cached in it is forgotten. The caller has checked `num_free`."""
        block_id, _ = self._free.popitem(last=False)
        self._cache.forget(block_id)
        self._references[block_id] = 1
        return block_id

    def share(self, block_id: int) -> None:
        """One more holder of a cached block, free or not."""
        if self._references[block_id] == 0:
            del self._free[block_id]
        self._references[block_id] += 1

    def release(self, block_ids: Iterable[int]) -> None:
        """One holder less for each block, the last block first: a prefix outlives what follows it."""
        for block_id in reversed(list(block_ids)):
            assert self._references[block_id] > 0, f"block {block_id} was freed twice"
            self._references[block_id] -= 1
            if self._references[block_id] == 0:
                self._free[block_id] = None
                if block_id not in self._cache:
                    self._free.move_to_end(block_id, last=False)

    def check_integrity(self, tables: Iterable[list[int]]) -> None:
        """Assert that the block tables given account for every reference, and the free list for every other block."""
        held = Counter(block_id for table in tables for block_id in table)
        for block_id, count in enumerate(self._references):
            assert count == held[block_id], f"block {block_id}: {count} references, {held[block_id]} holders"
            assert (count == 0) == (block_id in self._free), f"block {block_id}: {count} references, wrongly (un)free"
        self._cache.check_integrity()
