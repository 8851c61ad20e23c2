"""Which block holds the KV of which tokens: a map from chained block hashes to block ids.

A block's hash covers its own tokens and, through its parent's hash, all tokens before it (as in vLLM's automatic prefix
caching). Knows nothing of reference counts or memory: that is the block pool's business.
"""

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from engine.request import Request

DIGEST_BYTES = 16


def root_hash(salt: str) -> bytes:
    """The parent of every first block under `salt`: blocks are shared only under equal salts."""
    return blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES, person=b"prefix-root").digest()


def chain_hash(parent: bytes, token_ids: Sequence[int], num_generated: int = 0) -> bytes:
    """The hash of one full block. `num_generated` of its tokens sets apart what was written while generating."""
    digest = blake2b(parent, digest_size=DIGEST_BYTES, person=b"prefix-block")
    digest.update(array("I", token_ids).tobytes())
    if num_generated:
        digest.update(num_generated.to_bytes(4, "little"))
    return digest.digest()


def extend_hashes(request: Request, block_size: int) -> None:
    """Hash the full blocks of `request.token_ids` that have no hash yet.

    `block_hashes` sets a block with generated tokens apart from a prompt's block of the same tokens, because their KV
    may differ in the last bits (a token's arithmetic depends on its role). `prompt_hashes` does not.
    """
    exact, plain = request.block_hashes, request.prompt_hashes
    for index in range(len(exact), len(request.token_ids) // block_size):
        end = (index + 1) * block_size
        tokens = request.token_ids[end - block_size : end]
        num_generated = max(0, min(block_size, end - request.num_prompt))
        parents = (exact[-1], plain[-1]) if exact else (root_hash(request.params.cache_salt),) * 2
        plain.append(chain_hash(parents[1], tokens))
        exact.append(chain_hash(parents[0], tokens, num_generated) if num_generated else plain[-1])


class PrefixCache:
    """Which block holds the KV behind a hash. One block has one hash, and may have one more name: see `register`."""

    def __init__(self) -> None:
        self._block_of: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}
        self._block_of_alias: dict[bytes, int] = {}
        self._alias_of: dict[int, bytes] = {}

    def match(self, hashes: Iterable[bytes], num_by_alias: int = 0) -> list[int]:
        """The blocks of the longest cached prefix; the first `num_by_alias` may have been written while generating."""
        blocks: list[int] = []
        for index, block_hash in enumerate(hashes):
            block_id = self._block_of.get(block_hash)
            if block_id is None and index < num_by_alias:
                block_id = self._block_of_alias.get(block_hash)
            if block_id is None:
                break
            blocks.append(block_id)
        return blocks

    def register(self, block_hash: bytes, block_id: int, alias: bytes | None = None) -> None:
        """Remember a block whose KV is complete. Of two blocks with equal content the first stays the known one.

        `alias`: the hash by which a prompt may find a block that was written while generating.
        """
        if block_hash in self._block_of or block_id in self._hash_of:
            return
        self._block_of[block_hash] = block_id
        self._hash_of[block_id] = block_hash
        if alias is not None and alias != block_hash and alias not in self._block_of_alias:
            self._block_of_alias[alias] = block_id
            self._alias_of[block_id] = alias

    def forget(self, block_id: int) -> None:
        """The block is about to be overwritten."""
        block_hash = self._hash_of.pop(block_id, None)
        if block_hash is not None:
            del self._block_of[block_hash]
        alias = self._alias_of.pop(block_id, None)
        if alias is not None:
            del self._block_of_alias[alias]

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._hash_of

    def __len__(self) -> int:
        return len(self._hash_of)

    def check_integrity(self) -> None:
        """Assert that hashes and blocks belong together one to one, and that only known blocks have a second name."""
        for block_of, hash_of in ((self._block_of, self._hash_of), (self._block_of_alias, self._alias_of)):
            assert len(block_of) == len(hash_of), "hashes and blocks of the prefix cache differ in number"
            for block_hash, block_id in block_of.items():
                assert hash_of.get(block_id) == block_hash, f"block {block_id} is cached under two hashes"
        assert self._alias_of.keys() <= self._hash_of.keys(), "a block that is not cached has an alias"
