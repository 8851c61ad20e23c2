"""Gives sequences their blocks, and takes them back: prefix hits, forks, copies before writing, swapping.

Knows no queue and no order: the scheduler decides who, and when. Data is moved by the transfers that it writes into the
plan. They are carried out in their order before the step's tokens are computed; so a block may be given away in the
same plan that still copies from it.
"""

from collections import Counter

from engine.block_pool import BlockPool
from engine.plan import Transfer
from engine.prefix_cache import PrefixCache, extend_hashes
from engine.request import Request
from engine.swap import HostBlocks


class BlockTables:
    def __init__(
        self, num_blocks: int, num_host_blocks: int, block_size: int, *, prefix_caching: bool, exact_prefix: bool
    ) -> None:
        self.cache = PrefixCache()
        self.pool = BlockPool(num_blocks, self.cache)
        self.host = HostBlocks(num_host_blocks)
        self.num_swapped_blocks = 0
        self._block_size = block_size
        self._prefix_caching = prefix_caching
        self._exact_prefix = exact_prefix
        self._forks: dict[Request, None] = {}  # waiting choices that hold the blocks of their prompt

    def num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self._block_size)

    def open(self, request: Request, transfers: list[Transfer], headroom: int) -> bool:
        """Give a waiting request blocks for all its tokens; False if then fewer than `headroom` would stay free.

        `num_computed` is what is known already: from host memory, from a fork, or from the prefix cache. At least one
        token is always left to compute, because its logits are needed.
        """
        known = request.block_ids or self._match(request)
        num_computed = request.num_computed
        if not (request.block_ids or request.host_block_ids):
            num_computed = min(len(known) * self._block_size, len(request.token_ids) - 1)
        # All blocks before the one that is written first. That one may be known, too; then it is copied, if need be.
        shared = known[: num_computed // self._block_size]
        partial = known[len(shared)] if len(shared) < len(known) else None
        num_new = self.num_blocks_for(len(request.token_ids)) - len(shared)
        num_taken = num_new + sum(map(self.pool.is_free, shared))
        if num_taken + headroom > self.pool.num_free:
            return False
        for block_id in shared:
            self.pool.share(block_id)
        if request in self._forks:
            self.drop(request)
        new = [self.pool.allocate() for _ in range(num_new)]
        if partial is not None and partial != new[0]:
            transfers.append(Transfer("copy", partial, new[0]))
        if request.host_block_ids:
            self._swap_in(request, [*shared, *new], len(shared), transfers)
        request.block_ids = [*shared, *new]
        request.num_computed = num_computed
        request.num_registered = len(shared)
        return True

    def num_free_without(self, victims: list[Request]) -> int:
        """How many blocks would be free if these running requests had none."""
        held = Counter(block_id for request in victims for block_id in request.block_ids)
        return self.pool.num_free + sum(count == self.pool.num_holders(block_id) for block_id, count in held.items())

    def grow(self, request: Request) -> bool:
        """See to it that a running request has a block for its last token; False if none is free."""
        if len(request.block_ids) * self._block_size < len(request.token_ids):
            if not self.pool.num_free:
                return False
            request.block_ids.append(self.pool.allocate())
        return True

    def advance(self, request: Request, num_tokens: int) -> None:
        """So many more tokens' KV has been written: full blocks become known to the prefix cache."""
        request.num_computed += num_tokens
        num_full = request.num_computed // self._block_size
        if num_full > request.num_registered and self._prefix_caching:
            extend_hashes(request, self._block_size)
            for index in range(request.num_registered, num_full):
                alias = None if self._exact_prefix else request.prompt_hashes[index]
                self.cache.register(request.block_hashes[index], request.block_ids[index], alias)
            request.num_registered = num_full

    def fork(self, source: Request, choice: Request) -> None:
        """A further choice holds the blocks of the prompt that `source` has computed, until it is admitted.

        The last of them may be in part the source's own: it goes on writing there, behind what the fork will copy.
        """
        choice.block_ids = source.block_ids[: self.num_blocks_for(choice.num_prompt)]
        for block_id in choice.block_ids:
            self.pool.share(block_id)
        choice.num_computed = choice.num_prompt - 1
        choice.num_cached = source.num_cached
        self._forks[choice] = None

    def drop_fork(self) -> bool:
        """Take the blocks back from the last choice that holds some while it waits; False if there is none."""
        if not self._forks:
            return False
        self.drop(next(reversed(self._forks)))
        return True

    def drop(self, request: Request) -> None:
        """Give back all that a request holds, in whatever state it is; its tokens are to be computed anew."""
        self._forks.pop(request, None)
        self.pool.release(request.block_ids)
        self.host.release(request.host_block_ids)
        request.block_ids = []
        request.host_block_ids = []
        request.num_computed = 0
        request.num_registered = 0

    def suspend(self, request: Request, transfers: list[Transfer]) -> None:
        """Take the blocks of a running request: swapped out if host memory has room for all its KV, dropped if not.

        To copy a block there and back costs some hundred times less than to compute its 16 tokens anew, so only room
        decides. A sequence with less than one full block is not worth a transfer.
        """
        num_used = self.num_blocks_for(request.num_computed)
        num_computed = request.num_computed
        if num_computed < self._block_size or num_used > self.host.num_free:
            self.drop(request)
            return
        host_block_ids = [self.host.allocate() for _ in range(num_used)]
        transfers += [
            Transfer("out", block_id, host_id)
            for block_id, host_id in zip(request.block_ids, host_block_ids, strict=False)
        ]
        self.num_swapped_blocks += num_used
        self.drop(request)
        request.host_block_ids = host_block_ids
        request.num_computed = num_computed

    def check_integrity(self, running: list[Request], waiting: list[Request]) -> None:
        """Assert that every block, here and in host memory, is accounted for by what these requests hold."""
        self.pool.check_integrity(request.block_ids for request in (*running, *self._forks))
        self.host.check_integrity(request.host_block_ids for request in (*running, *waiting))
        for request in running:
            assert not request.host_block_ids, f"{request.request_id} runs and holds host blocks"
            assert 0 <= request.num_computed <= len(request.token_ids), f"{request.request_id}: impossible num_computed"
            assert len(request.block_ids) >= self.num_blocks_for(request.num_computed), "a block table is too short"
            self._check_next_write(request)
        for request in waiting:
            assert bool(request.block_ids) == (request in self._forks), f"{request.request_id} waits and holds blocks"
            if request.host_block_ids:
                assert len(request.host_block_ids) == self.num_blocks_for(request.num_computed), "lost host blocks"
            elif not request.block_ids:
                assert request.num_computed == 0, f"{request.request_id} waits and has tokens computed"
        assert set(self._forks) <= set(waiting), "a fork holds blocks and does not wait"

    def _match(self, request: Request) -> list[int]:
        """The blocks of the cached prefix.

        A request that comes back gets the bits it had: blocks that were written while generating hold its prompt only
        where they may have done so before.
        """
        if not self._prefix_caching or not request.uses_cached_prefix:
            return []
        extend_hashes(request, self._block_size)
        hashes = request.block_hashes
        if request.host_block_ids:
            hashes = hashes[: request.num_computed // self._block_size]
        num_by_alias = request.num_cached // self._block_size if request.had_its_turn else len(hashes)
        return self.cache.match(hashes, num_by_alias)

    def _swap_in(self, request: Request, table: list[int], start: int, transfers: list[Transfer]) -> None:
        transfers += [
            Transfer("in", request.host_block_ids[index], table[index])
            for index in range(start, len(request.host_block_ids))
        ]
        self.host.release(request.host_block_ids)
        request.host_block_ids = []

    def _check_next_write(self, request: Request) -> None:
        """Only forks may hold the block that a request writes to, besides itself."""
        index, offset = divmod(request.num_computed, self._block_size)
        if offset:
            block_id = request.block_ids[index]
            num_forks = sum(block_id in fork.block_ids for fork in self._forks)
            assert self.pool.num_holders(block_id) == 1 + num_forks, f"{request.request_id} writes to others' block"
