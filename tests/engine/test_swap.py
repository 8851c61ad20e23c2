"""Host blocks are handed out once, and a lost one is noticed."""

import pytest

from engine.swap import HostBlocks


def test_every_block_is_free_or_in_one_table() -> None:
    host = HostBlocks(3)
    first, second = [host.allocate(), host.allocate()], [host.allocate()]
    assert host.num_free == 0
    host.check_integrity([first, second])
    host.release(first)
    host.check_integrity([second])
    assert host.num_free == 2


@pytest.mark.parametrize("tables", [[], [[0], [0]], [[1]], [[0, 1]]])
def test_a_wrong_table_is_noticed(tables: list[list[int]]) -> None:
    host = HostBlocks(2)
    while host.allocate() != 0:
        pass
    host.release([1])
    host.check_integrity([[0]])
    with pytest.raises(AssertionError):
        host.check_integrity(tables)
