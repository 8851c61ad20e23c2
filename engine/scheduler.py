"""Which tokens run in the next step. Pure bookkeeping: knows no torch and no text.

Continuous batching with chunked prefill over a paged KV cache (Orca, OSDI 2022; PagedAttention, SOSP 2023;
Sarathi-Serve, OSDI 2024). Running decodes come first; then prompts, by priority, and within a priority in equal parts
for each fairness key. When blocks run out, the request of the worst rank gives its own back. `ageing` keeps a bad
priority from waiting for ever.
"""

from bisect import bisect_left, insort
from collections import Counter

from engine.ageing import Ageing
from engine.block_tables import BlockTables
from engine.plan import PlannedSequence, StepPlan
from engine.request import Request, Status
from engine.types import EngineOptions, FinishReason
from engine.waiting_queue import WaitingQueue

# A request is admitted when everything that runs can grow by so many blocks; each preemption it suffers makes it more
# patient by this factor. So requests are not resumed only to be preempted again, and short ones soon never are.
LOOKAHEAD_BLOCKS = 1
PATIENCE = 4


class Scheduler:
    def __init__(self, options: EngineOptions, num_blocks: int, block_size: int, num_host_blocks: int = 0) -> None:
        self.block_size = block_size
        self.tables = BlockTables(
            num_blocks,
            num_host_blocks,
            block_size,
            prefix_caching=options.prefix_caching,
            exact_prefix=options.exact_prefix,
        )
        self.pool = self.tables.pool
        self.cache = self.tables.cache
        self.running: list[Request] = []  # by rank
        self.waiting = WaitingQueue()
        self.num_preemptions = 0
        self.num_prompt_tokens = 0  # of all prompts that were ever admitted
        self.num_cached_tokens = 0  # of these, found in the prefix cache
        self._max_batch_tokens = options.max_batch_tokens
        self._max_running = min(options.max_batch_size, options.max_batch_tokens)
        self._ageing = Ageing()
        self._num_turns = 0
        self._preempted: list[Request] = []  # by the plan that was made last
        self._is_blocked = False  # in the plan that is being made: the first in line does not fit

    def add(self, request: Request) -> None:
        """Queue a request that has been validated: alone in the pool it fits up to its `max_length`."""
        request.max_blocks = self.tables.num_blocks_for(request.max_length)
        assert request.max_blocks <= self.tables.pool.num_blocks, "admitted what can never fit"
        request.status = Status.WAITING
        request.queued_at = self._ageing.step
        request.turn = self._next_turn()
        self.waiting.push(request)

    def add_choices(self, source: Request) -> None:
        """Queue the further choices of a request whose prompt has just been computed: they share its blocks."""
        for choice in source.choices:
            if choice.status is Status.NEW:
                choice.max_blocks = source.max_blocks
                choice.status = Status.WAITING
                choice.queued_at = source.queued_at
                choice.turn = source.turn
                self.tables.fork(source, choice)
                self.waiting.push(choice)

    def schedule(self) -> StepPlan:
        """The next step's plan. Blocks for every planned token are in the requests' block tables."""
        plan = StepPlan()
        self._preempted = []
        self._is_blocked = False
        if (lifted := self._ageing.next(self.running, self.waiting)) is not None:
            self._lift(*lifted)
        if self.waiting:
            self._make_way(plan)
        num_decodes = self._plan_decodes(plan)
        if num_decodes < len(self.running) or self.waiting:
            self._plan_prompts(plan, self._max_batch_tokens - num_decodes)
        return plan

    def advance(self, planned: PlannedSequence) -> None:
        """The planned tokens' KV has been written."""
        self.tables.advance(planned.request, planned.num_tokens)

    def release(self, request: Request, reason: FinishReason) -> None:
        """The only exit of a request, from any state: its blocks go back. A second call does nothing."""
        if request.status is Status.FINISHED:
            return
        if request.status is Status.WAITING:
            self.waiting.remove(request)
        elif request.status is Status.RUNNING:
            self._leave_running(request)
        self.tables.drop(request)
        request.status = Status.FINISHED
        request.finish_reason = reason

    def distrust_last_plan(self) -> None:
        """It could not be carried out: what it was to copy out to host memory must be computed anew."""
        for request in self._preempted:
            if request.status is Status.WAITING:
                self.tables.drop(request)

    def check_integrity(self) -> None:
        """Assert what must hold between two steps: every request in its place, every block accounted for."""
        ranks = [request.rank for request in self.running]
        assert ranks == sorted(ranks), "the running requests are out of order"
        assert len(self.running) <= self._max_running, "more requests run than a step may hold"
        for request in self.running:
            assert request.status is Status.RUNNING, f"{request.request_id} runs as {request.status}"
        waiting = list(self.waiting)
        assert len(waiting) == len(self.waiting), "the waiting requests are miscounted"
        for request in waiting:
            assert request.status is Status.WAITING, f"{request.request_id} waits as {request.status}"
        self.tables.check_integrity(self.running, waiting)

    def _plan(self, plan: StepPlan, request: Request, num_tokens: int) -> None:
        samples = num_tokens == request.num_pending and request.wants_tokens
        plan.sequences.append(PlannedSequence(request, request.num_computed, num_tokens, samples))

    def _plan_decodes(self, plan: StepPlan) -> int:
        """Every running request with one token to compute, in order of rank."""
        for request in [each for each in self.running if len(each.token_ids) - each.num_computed == 1]:
            if self._grow(plan, request):
                self._plan(plan, request, 1)
                self.waiting.charge(request.params.fairness_key, 1)
        return len(plan.sequences)

    def _grow(self, plan: StepPlan, request: Request) -> bool:
        """Give a decoding request the block for its next token; False if it had to be preempted itself."""
        if request.status is not Status.RUNNING:
            return False
        # Decodes are planned in order of rank: the worst rank is `request` itself, or not planned yet.
        while not self.tables.grow(request):
            if self.tables.drop_fork():
                continue
            victim = self.running[-1]
            self._preempt(plan, victim)
            if victim is request:
                return False
        return True

    def _plan_prompts(self, plan: StepPlan, budget: int) -> None:
        """Chunks of the prompts under way, then new requests: all of one priority before those of the next."""
        under_way = [each for each in self.running if len(each.token_ids) - each.num_computed > 1]
        chunks: dict[Request, int] = {}
        priorities = {each.priority for each in under_way}
        if self._preempted:  # what has just been too much for the blocks does not come back in the same step
            self._is_blocked = True
        else:
            priorities.update(self.waiting.priorities)
        for priority in sorted(priorities):
            if budget == 0:
                break
            members = [each for each in under_way if each.priority == priority]
            budget = self._fill(plan, chunks, members, priority, budget)
        for request, num_tokens in chunks.items():
            self._plan(plan, request, num_tokens)

    def _fill(
        self, plan: StepPlan, chunks: dict[Request, int], under_way: list[Request], priority: int, budget: int
    ) -> int:
        """Share the budget among one priority's fairness keys: equal parts first, then what is left; returns the rest.

        A key's part goes to its prompts under way before its new requests.
        """
        keys = {each.params.fairness_key for each in under_way} | self.waiting.keys(priority)
        part = max(self.block_size, budget // len(keys))
        used: Counter[str] = Counter()
        for limit in (part, self._max_batch_tokens) if len(keys) > 1 else (budget,):
            for request in under_way:
                budget -= self._extend(chunks, request, min(budget, limit - used[request.params.fairness_key]), used)
            while budget > 0 and not self._is_blocked:
                head = self.waiting.peek()
                if head is None or head.priority != priority:
                    break
                room = min(budget, limit - used[head.params.fairness_key])
                if room <= 0 or not self._admit(plan, head):
                    break
                under_way.append(head)
                budget -= self._extend(chunks, head, room, used)
        return budget

    def _extend(self, chunks: dict[Request, int], request: Request, room: int, used: Counter[str]) -> int:
        """Let a request run up to `room` tokens more in this step; how many it takes."""
        num_tokens = min(room, request.num_pending - chunks.get(request, 0))
        if num_tokens <= 0:
            return 0
        chunks[request] = chunks.get(request, 0) + num_tokens
        used[request.params.fairness_key] += num_tokens
        self.waiting.charge(request.params.fairness_key, num_tokens)
        return num_tokens

    def _make_way(self, plan: StepPlan) -> None:
        """Start the first in line with places and blocks of a worse priority, one request a step, if they suffice."""
        head = self.waiting.peek()
        if head is None or not self.running or self.running[-1].priority <= head.priority:
            return
        if self._admit(plan, head):
            return
        start = bisect_left(self.running, head.priority + 1, key=lambda each: each.priority)
        kept, victims = self.running[:start], self.running[start:]
        num_needed = self.tables.num_blocks_for(len(head.token_ids)) + _headroom(head, kept, self.tables)
        if self.tables.num_free_without(victims) < num_needed:
            return
        while not self._admit(plan, head):
            self._preempt(plan, self.running[-1])

    def _admit(self, plan: StepPlan, request: Request) -> bool:
        """Nobody overtakes a request that does not fit yet: it will, when those before it have finished."""
        if len(self.running) >= self._max_running:
            return False
        while not self.tables.open(request, plan.transfers, _headroom(request, self.running, self.tables)):
            # Only when nothing runs that will give blocks back do those count that waiting choices hold.
            if self.running or not self.tables.drop_fork():
                self._is_blocked = True
                return False
        self.waiting.remove(request)
        if not request.had_its_turn:
            request.turn = self._next_turn()
            request.num_cached = request.num_computed
            self.num_prompt_tokens += request.num_prompt
            self.num_cached_tokens += request.num_cached
        request.status = Status.RUNNING
        insort(self.running, request, key=_rank)
        return True

    def _lift(self, request: Request, priority: int) -> None:
        """Into a better priority, among those that run or those that wait."""
        if request.status is Status.RUNNING:
            self._leave_running(request)
            request.priority = priority
            insort(self.running, request, key=_rank)
        else:
            self.waiting.remove(request)
            request.priority = priority
            self.waiting.push(request)

    def _preempt(self, plan: StepPlan, request: Request) -> None:
        self._leave_running(request)
        self.tables.suspend(request, plan.transfers)
        request.status = Status.WAITING
        request.num_preemptions += 1
        self.num_preemptions += 1
        self._preempted.append(request)
        self.waiting.push(request)

    def _leave_running(self, request: Request) -> None:
        del self.running[bisect_left(self.running, request.rank, key=_rank)]

    def _next_turn(self) -> int:
        self._num_turns += 1
        return self._num_turns


def _rank(request: Request) -> tuple[int, int, int]:
    return request.rank


def _headroom(request: Request, running: list[Request], tables: BlockTables) -> int:
    """Blocks to leave free, so that a request is not admitted only to be preempted at once."""
    lookahead: int = LOOKAHEAD_BLOCKS * PATIENCE**request.num_preemptions
    growth: int = sum([min(lookahead, each.max_blocks - len(each.block_ids)) for each in running])
    return growth + min(lookahead, request.max_blocks - tables.num_blocks_for(len(request.token_ids)))
