"""Chained hashes: a block is found again exactly when all tokens up to its end, and the salt, are the same."""

from engine.prefix_cache import PrefixCache, chain_hash, extend_hashes, root_hash
from engine.request import Request
from engine.types import GenerationRequest


def request(token_ids: list[int], num_prompt: int | None = None, salt: str = "") -> Request:
    params = GenerationRequest(request_id="r", prompt_token_ids=token_ids, cache_salt=salt)
    return Request(params, token_ids, num_prompt or len(token_ids))


def hashes(token_ids: list[int], num_prompt: int | None = None, salt: str = "") -> list[bytes]:
    made = request(token_ids, num_prompt, salt)
    extend_hashes(made, 16)
    return made.block_hashes


def test_only_full_blocks_are_hashed() -> None:
    assert [len(hashes(list(range(n)))) for n in (0, 15, 16, 31, 32, 33)] == [0, 0, 1, 1, 2, 2]


def test_a_hash_covers_everything_before_its_block() -> None:
    a, b = hashes([*range(32)]), hashes([99, *range(1, 32)])
    assert a[0] != b[0]
    assert a[1] != b[1]
    assert hashes([*range(48)])[:2] == a


def test_the_salt_keeps_tenants_apart() -> None:
    assert hashes([*range(16)], salt="a") != hashes([*range(16)], salt="b")
    assert root_hash("") != root_hash("\x00")


def test_hashes_grow_with_the_sequence() -> None:
    grown = request([*range(20)])
    extend_hashes(grown, 16)
    grown.token_ids.extend(range(20, 50))
    extend_hashes(grown, 16)
    whole = request([*range(50)], num_prompt=20)
    extend_hashes(whole, 16)
    assert (grown.block_hashes, grown.prompt_hashes) == (whole.block_hashes, whole.prompt_hashes)


def test_generated_blocks_have_a_hash_of_their_own_and_a_prompts_hash_beside_it() -> None:
    tokens = [*range(48)]
    prompt, answer = hashes(tokens), request(tokens, num_prompt=20)
    extend_hashes(answer, 16)
    assert prompt[0] == answer.block_hashes[0]
    assert prompt[1] != answer.block_hashes[1]
    assert prompt[2] != answer.block_hashes[2]
    assert answer.prompt_hashes == prompt


def test_an_alias_is_found_only_by_who_looks_for_it() -> None:
    cache = PrefixCache()
    cache.register(b"generated", 3, alias=b"prompt")
    assert cache.match([b"prompt"]) == []
    assert cache.match([b"prompt"], 1) == [3]
    assert cache.match([b"generated", b"prompt"], 1) == [3], "of the first block only"
    assert cache.match([b"generated"]) == [3]
    cache.register(b"prompt", 4)
    assert cache.match([b"prompt"], 1) == [4], "what was computed as a prompt is preferred"
    cache.check_integrity()
    cache.forget(3)
    cache.forget(4)
    assert cache.match([b"prompt"], 1) == []
    cache.check_integrity()


def test_the_longest_cached_prefix_matches() -> None:
    cache = PrefixCache()
    chain = hashes([*range(64)])
    for block_id, block_hash in [(7, chain[0]), (3, chain[1]), (5, chain[3])]:
        cache.register(block_hash, block_id)
    assert cache.match(chain) == [7, 3]
    assert cache.match([]) == []
    cache.check_integrity()


def test_the_first_of_two_equal_blocks_stays_the_known_one() -> None:
    cache = PrefixCache()
    cache.register(b"h", 1)
    cache.register(b"h", 2)
    cache.forget(2)
    assert cache.match([b"h"]) == [1]
    cache.forget(1)
    cache.forget(1)
    assert cache.match([b"h"]) == []
    assert len(cache) == 0


def test_chain_hash_tells_token_borders_apart() -> None:
    assert chain_hash(b"", [1, 256]) != chain_hash(b"", [256, 1])
    assert chain_hash(b"", [1]) != chain_hash(b"", [1], num_generated=1)
