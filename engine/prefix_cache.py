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
    """The hash of one full block. `num_generated` sets apart blocks that were written while generating."""
    digest = blake2b(parent, digest_size=DIGEST_BYTES, person=b"prefix-block")
    digest.update(array("I", token_ids).tobytes())
    if num_generated:
        digest.update(num_generated.to_bytes(4, "little"))
    return digest.digest()


def extend_hashes(request: Request, block_size: int, *, exact: bool) -> None:
    """Hash the full blocks of `request.token_ids` that have no hash yet.

    `exact` hashes a generated token's block apart from a prompt's block of the same tokens, because their KV may differ
    in the last bits (a token's arithmetic depends on its role).
    """
    hashes = request.block_hashes
    parent = hashes[-1] if hashes else root_hash(request.params.cache_salt)
    for index in range(len(hashes), len(request.token_ids) // block_size):
        end = (index + 1) * block_size
        num_generated = max(0, min(block_size, end - request.num_prompt)) if exact else 0
        parent = chain_hash(parent, request.token_ids[end - block_size : end], num_generated)
        hashes.append(parent)


class PrefixCache:
    """A one-to-one map between hashes and the blocks that hold their KV."""

    def __init__(self) -> None:
        self._block_of: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}

    def match(self, hashes: Iterable[bytes]) -> list[int]:
        """The blocks of the longest cached prefix."""
        blocks: list[int] = []
        for block_hash in hashes:
            block_id = self._block_of.get(block_hash)
            if block_id is None:
                break
            blocks.append(block_id)
        return blocks

    def register(self, block_hash: bytes, block_id: int) -> None:
        """Remember a block whose KV is complete. Of two blocks with equal content the first stays the known one."""
        if block_hash not in self._block_of and block_id not in self._hash_of:
            self._block_of[block_hash] = block_id
            self._hash_of[block_id] = block_hash

    def forget(self, block_id: int) -> None:
        """The block is about to be overwritten."""
        block_hash = self._hash_of.pop(block_id, None)
        if block_hash is not None:
            del self._block_of[block_hash]

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._hash_of

    def __len__(self) -> int:
        return len(self._hash_of)

    def check_integrity(self) -> None:
        assert len(self._block_of) == len(self._hash_of), "hashes and blocks of the prefix cache differ in number"
        for block_hash, block_id in self._block_of.items():
            assert self._hash_of.get(block_id) == block_hash, f"block {block_id} is cached under two hashes"
