"""Who gets which blocks: hits, forks, copies before writing, and what host memory keeps."""

from engine.block_tables import BlockTables
from engine.plan import Transfer
from engine.request import Request
from engine.types import GenerationRequest


def make(
    num_blocks: int = 20, num_host_blocks: int = 0, prefix_caching: bool = True, exact: bool = False
) -> BlockTables:
    return BlockTables(num_blocks, num_host_blocks, 16, prefix_caching=prefix_caching, exact_prefix=exact)


def make_request(tokens: list[int], num_prompt: int | None = None) -> Request:
    num_prompt = len(tokens) if num_prompt is None else num_prompt
    params = GenerationRequest(request_id="r", prompt_token_ids=tokens[:num_prompt])
    return Request(params, list(tokens), num_prompt, max_length=len(tokens) + 16)


def opened(tables: BlockTables, request: Request) -> list[Transfer]:
    transfers: list[Transfer] = []
    assert tables.open(request, transfers, headroom=0)
    return transfers


def run(tables: BlockTables, request: Request) -> list[Transfer]:
    """Open it and compute all its tokens."""
    transfers = opened(tables, request)
    tables.advance(request, request.num_pending)
    return transfers


def test_a_prompt_of_whole_blocks_hits_all_and_writes_to_a_copy() -> None:
    tables = make()
    first, second = make_request([1] * 48), make_request([1] * 48)
    run(tables, first)
    transfers = opened(tables, second)
    assert second.num_computed == 47
    assert second.block_ids[:2] == first.block_ids[:2]
    assert transfers == [Transfer("copy", first.block_ids[2], second.block_ids[2])]
    tables.check_integrity([first, second], [])


def test_a_copy_is_saved_when_the_block_itself_is_to_be_had() -> None:
    """In a full pool the block that would be copied is the one that is allocated: its content is there already."""
    tables = make(num_blocks=3)
    first, second = make_request([1] * 48), make_request([1] * 48)
    run(tables, first)
    last = first.block_ids[2]
    tables.drop(first)
    assert opened(tables, second) == []
    assert (second.num_computed, second.block_ids[2]) == (47, last)


def test_a_fork_copies_the_block_that_its_prompt_ends_in_and_shares_the_others() -> None:
    tables = make(prefix_caching=False)
    source, fork = make_request([1] * 40), make_request([1] * 40)
    run(tables, source)
    tables.fork(source, fork)
    tables.check_integrity([source], [fork])
    assert (fork.block_ids, fork.num_computed) == (source.block_ids, 39)
    source.token_ids.append(9)
    assert tables.grow(source)
    assert opened(tables, fork) == [Transfer("copy", source.block_ids[2], fork.block_ids[2])]
    assert fork.block_ids[:2] == source.block_ids[:2]
    tables.check_integrity([source, fork], [])


def test_the_last_holder_of_a_forked_block_writes_in_place() -> None:
    tables = make(prefix_caching=False)
    source, fork = make_request([1] * 40), make_request([1] * 40)
    run(tables, source)
    tables.fork(source, fork)
    block_ids = list(source.block_ids)
    tables.drop(source)
    assert opened(tables, fork) == []
    assert fork.block_ids == block_ids


def test_a_dropped_fork_begins_anew() -> None:
    tables = make(prefix_caching=False)
    source, fork = make_request([1] * 40), make_request([1] * 40)
    run(tables, source)
    tables.fork(source, fork)
    assert tables.drop_fork()
    assert not tables.drop_fork()
    assert (fork.block_ids, fork.num_computed) == ([], 0)
    tables.check_integrity([source], [fork])


def test_what_is_swapped_out_comes_back_to_other_blocks_but_for_what_is_still_cached() -> None:
    tables = make(num_host_blocks=5)
    request = make_request([1] * 40)
    run(tables, request)
    before = list(request.block_ids)
    transfers: list[Transfer] = []
    tables.suspend(request, transfers)
    assert [(each.kind, each.source) for each in transfers] == [("out", block_id) for block_id in before]
    assert (request.num_computed, tables.pool.num_free, tables.host.num_free) == (40, 20, 2)
    tables.check_integrity([], [request])
    request.token_ids.append(2)
    back = opened(tables, request)
    assert [(each.kind, each.source) for each in back] == [("in", transfers[2].target)]
    assert request.block_ids[:2] == before[:2]
    assert (request.num_computed, tables.host.num_free) == (40, 5)
    tables.check_integrity([request], [])


def test_less_than_a_block_is_not_swapped() -> None:
    tables = make(num_host_blocks=5)
    request = make_request([1] * 15)
    run(tables, request)
    transfers: list[Transfer] = []
    tables.suspend(request, transfers)
    assert (transfers, request.num_computed, tables.num_swapped_blocks) == ([], 0, 0)


def test_a_request_that_comes_back_takes_no_generated_block_for_its_prompt() -> None:
    tables = make(num_blocks=6)
    prompt, answered = make_request([1] * 33), make_request([1] * 32, num_prompt=1)
    run(tables, prompt)
    tables.drop(prompt)
    filler = make_request([5] * 96)
    run(tables, filler)  # forgets all of it
    tables.drop(filler)
    run(tables, answered)
    tables.drop(answered)
    newcomer = make_request([1] * 33)
    opened(tables, newcomer)
    assert newcomer.num_computed == 32
    tables.drop(newcomer)
    prompt.num_preemptions = 1
    opened(tables, prompt)
    assert prompt.num_computed == 0


def test_exact_prefixes_never_take_generated_blocks() -> None:
    tables = make(exact=True)
    answered, newcomer = make_request([1] * 32, num_prompt=1), make_request([1] * 33)
    run(tables, answered)
    opened(tables, newcomer)
    assert newcomer.num_computed == 0


def test_nothing_is_given_when_too_little_would_stay_free() -> None:
    tables = make(num_blocks=4)
    request = make_request([1] * 48)
    assert not tables.open(request, [], headroom=2)
    tables.check_integrity([], [request])
    assert tables.open(request, [], headroom=1)


def test_blocks_that_others_share_are_not_won_from_a_victim() -> None:
    tables = make(num_blocks=10)
    first, second = make_request([1] * 40), make_request([1] * 32 + [2] * 30)
    run(tables, first)
    run(tables, second)
    assert tables.pool.num_free == 5
    assert tables.num_free_without([first]) == 6
    assert tables.num_free_without([first, second]) == 10
