"""Which tokens run in the next step, and in which blocks their KV lies. Pure bookkeeping: knows no torch and no text.

Continuous batching with chunked prefill over a paged KV cache (Orca, OSDI 2022; PagedAttention, SOSP 2023;
Sarathi-Serve, OSDI 2024). Running decodes come first, then chunks of prompts that are under way, then new requests, all
within one budget of tokens. When blocks run out, the request of the worst rank gives its blocks back and is computed
anew later.
"""

from bisect import bisect_left, insort

from engine.block_pool import BlockPool
from engine.plan import PlannedSequence, StepPlan
from engine.prefix_cache import PrefixCache, extend_hashes
from engine.request import Request, Status
from engine.types import EngineOptions, FinishReason
from engine.waiting_queue import WaitingQueue

# A request is admitted when everything that runs can grow by so many blocks; each preemption it suffers makes it more
# patient by this factor. So requests are not resumed only to be preempted again, and short ones soon never are.
LOOKAHEAD_BLOCKS = 1
PATIENCE = 4


class Scheduler:
    def __init__(self, options: EngineOptions, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.cache = PrefixCache()
        self.pool = BlockPool(num_blocks, self.cache)
        self.running: list[Request] = []  # by rank
        self.waiting = WaitingQueue()
        self.num_preemptions = 0
        self._exact_prefix = options.exact_prefix
        self._max_batch_tokens = options.max_batch_tokens
        self._max_running = min(options.max_batch_size, options.max_batch_tokens)
        self._num_arrivals = 0

    def add(self, request: Request) -> None:
        """Queue a request that has been validated: alone in the pool it fits up to its `max_length`."""
        assert self._num_blocks_for(request.max_length) <= self.pool.num_blocks, "admitted what can never fit"
        request.arrival = self._num_arrivals
        self._num_arrivals += 1
        extend_hashes(request, self.block_size, exact=self._exact_prefix)
        self.waiting.push(request)

    def schedule(self) -> StepPlan:
        """The next step's plan. Blocks for every planned token are in the requests' block tables."""
        plan = StepPlan()
        num_preemptions = self.num_preemptions
        for request in [request for request in self.running if request.num_pending == 1]:
            if self._grow(request):
                self._plan(plan, request, 1)
        budget = self._max_batch_tokens - plan.num_tokens
        for request in self.running:
            if request.num_pending > 1 and budget > 0:
                budget -= self._plan(plan, request, budget)
        if self.num_preemptions == num_preemptions:
            self._admit(plan, budget)
        return plan

    def advance(self, planned: PlannedSequence) -> None:
        """The planned tokens' KV has been written: full blocks become known to the prefix cache."""
        request = planned.request
        first_block = request.num_computed // self.block_size
        request.num_computed += planned.num_tokens
        extend_hashes(request, self.block_size, exact=self._exact_prefix)
        for index in range(first_block, request.num_computed // self.block_size):
            self.cache.register(request.block_hashes[index], request.block_ids[index])

    def release(self, request: Request, reason: FinishReason) -> None:
        """The only exit of a request, from any state: its blocks go back. A second call does nothing."""
        if request.status is Status.FINISHED:
            return
        if request.status is Status.WAITING:
            self.waiting.remove(request)
        else:
            self._leave_running(request)
        request.status = Status.FINISHED
        request.finish_reason = reason

    def check_integrity(self) -> None:
        """Assert what must hold between two steps: every block accounted for, every block table long enough."""
        self.pool.check_integrity(request.block_ids for request in self.running)
        assert [request.rank for request in self.running] == sorted(request.rank for request in self.running)
        assert len(self.running) <= self._max_running, "more requests run than a step may hold"
        for request in self.running:
            assert request.status is Status.RUNNING, f"{request.request_id} runs as {request.status}"
            assert 0 <= request.num_computed <= len(request.token_ids), f"{request.request_id}: impossible num_computed"
            assert len(request.block_ids) >= self._num_blocks_for(request.num_computed), "a block table is too short"
        for request in self.waiting:
            assert request.status is Status.WAITING, f"{request.request_id} waits as {request.status}"
            assert not request.block_ids, f"{request.request_id} waits and holds blocks"
            assert request.num_computed == 0, f"{request.request_id} waits and has tokens computed"

    def _plan(self, plan: StepPlan, request: Request, budget: int) -> int:
        num_tokens = min(request.num_pending, budget)
        samples = num_tokens == request.num_pending and request.wants_tokens
        plan.sequences.append(PlannedSequence(request, request.num_computed, num_tokens, samples))
        return num_tokens

    def _grow(self, request: Request) -> bool:
        """Give a decoding request the block for its next token; False if it had to be preempted itself."""
        if request.status is not Status.RUNNING:
            return False
        if len(request.block_ids) >= self._num_blocks_for(len(request.token_ids)):
            return True
        # Decodes are planned in order of rank: the worst rank is `request` itself, or not planned yet.
        while self.pool.num_free == 0:
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        request.block_ids.append(self.pool.allocate())
        return True

    def _preempt(self, request: Request) -> None:
        self._leave_running(request)
        request.status = Status.WAITING
        request.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.push(request)

    def _admit(self, plan: StepPlan, budget: int) -> None:
        """Nobody overtakes a request that does not fit yet: it will, when those before it have finished."""
        while budget > 0 and len(self.running) < self._max_running:
            request = self.waiting.peek()
            if request is None or not self._start(request):
                return
            budget -= self._plan(plan, request, budget)

    def _start(self, request: Request) -> bool:
        """Give a waiting request the blocks of all its tokens, cached ones where there are; False if it doesn't fit."""
        num_tokens = len(request.token_ids)
        # At least one token is always computed, in a block of its own: its logits are needed, and a shared block is
        # never written to.
        hits = self.cache.match(request.block_hashes[: (num_tokens - 1) // self.block_size])
        num_new = self._num_blocks_for(num_tokens) - len(hits)
        num_taken = num_new + sum(self.pool.is_free(block_id) for block_id in hits)
        if num_taken + self._headroom(request) > self.pool.num_free:
            return False
        for block_id in hits:
            self.pool.share(block_id)
        request.block_ids = hits + [self.pool.allocate() for _ in range(num_new)]
        request.num_computed = len(hits) * self.block_size
        self.waiting.take(request)
        if request.num_preemptions == 0:
            request.num_cached = request.num_computed
        request.status = Status.RUNNING
        insort(self.running, request, key=lambda running: running.rank)
        return True

    def _headroom(self, request: Request) -> int:
        """Blocks to leave free, so that a request is not admitted only to be preempted at once."""
        lookahead = LOOKAHEAD_BLOCKS * PATIENCE**request.num_preemptions
        return sum(min(lookahead, self._growth(each)) for each in (*self.running, request))

    def _growth(self, request: Request) -> int:
        """How many blocks more than now the request may come to need."""
        return self._num_blocks_for(request.max_length) - self._num_blocks_for(len(request.token_ids))

    def _leave_running(self, request: Request) -> None:
        """The only place that gives blocks back."""
        del self.running[bisect_left(self.running, request.rank, key=lambda running: running.rank)]
        self.pool.release(request.block_ids)
        request.block_ids = []
        request.num_computed = 0

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)
