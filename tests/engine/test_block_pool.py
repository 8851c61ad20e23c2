"""Blocks are counted, never lost, and forgotten in the right order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.block_pool import BlockPool
from engine.prefix_cache import PrefixCache


def pool_with_cached(num_blocks: int, cached: list[int]) -> tuple[BlockPool, PrefixCache]:
    """Blocks in `cached` have been used, registered and released, in that order."""
    cache = PrefixCache()
    pool = BlockPool(num_blocks, cache)
    blocks = [pool.allocate() for _ in range(num_blocks)]
    for block_id in cached:
        cache.register(bytes([block_id]), block_id)
    pool.release([block_id for block_id in blocks if block_id not in cached])
    for block_id in cached:
        pool.release([block_id])
    return pool, cache


def test_blocks_without_content_go_first_then_the_least_recently_used() -> None:
    pool, cache = pool_with_cached(5, [3, 0, 4])
    assert [pool.allocate() for _ in range(5)] == [1, 2, 3, 0, 4]
    assert len(cache) == 0


def test_a_block_used_again_is_forgotten_last() -> None:
    pool, _ = pool_with_cached(3, [0, 1, 2])
    pool.share(0)
    pool.release([0])
    assert [pool.allocate() for _ in range(3)] == [1, 2, 0]


def test_of_one_sequence_the_end_is_forgotten_before_the_beginning() -> None:
    cache = PrefixCache()
    pool = BlockPool(3, cache)
    table = [pool.allocate() for _ in range(3)]
    for block_id in table:
        cache.register(bytes([block_id]), block_id)
    pool.release(table)
    assert [pool.allocate() for _ in range(3)] == table[::-1]


def test_a_shared_block_is_free_when_its_last_holder_leaves() -> None:
    pool, _ = pool_with_cached(2, [1])
    pool.share(1)
    pool.share(1)
    pool.release([1])
    assert pool.num_free == 1
    pool.check_integrity([[1]])
    pool.release([1])
    assert pool.num_free == 2


def test_freeing_twice_is_noticed() -> None:
    pool, _ = pool_with_cached(2, [])
    block_id = pool.allocate()
    pool.release([block_id])
    with pytest.raises(AssertionError, match="freed twice"):
        pool.release([block_id])


@pytest.mark.parametrize("tables", [[], [[0], [0]], [[1]]])
def test_the_integrity_check_notices_a_wrong_table(tables: list[list[int]]) -> None:
    pool = BlockPool(2, PrefixCache())
    assert pool.allocate() == 0
    pool.check_integrity([[0]])
    with pytest.raises(AssertionError):
        pool.check_integrity(tables)


@given(st.lists(st.tuples(st.sampled_from(["allocate", "share", "release", "register"]), st.integers(0, 7))))
def test_every_block_is_accounted_for_after_any_history(history: list[tuple[str, int]]) -> None:
    cache = PrefixCache()
    pool = BlockPool(6, cache)
    held: list[int] = []
    for i, (action, pick) in enumerate(history):
        if action == "allocate" and pool.num_free:
            held.append(pool.allocate())
        elif action == "share" and (cached := [block for block in range(6) if block in cache]):
            held.append(cached[pick % len(cached)])
            pool.share(held[-1])
        elif action == "release" and held:
            pool.release([held.pop(pick % len(held))])
        elif action == "register" and held:
            cache.register(i.to_bytes(4, "little"), held[pick % len(held)])
        pool.check_integrity([[block] for block in held])
        assert pool.num_free == 6 - len(set(held))
