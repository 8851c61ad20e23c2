"""One sequence from arrival to its last token: plain state, owned by the scheduler's thread. Knows no torch."""

import enum
from dataclasses import dataclass, field

from engine.types import FinishReason, GenerationRequest


class Status(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Request:
    """`token_ids` is the prompt and what was generated; `num_computed` of them have their KV in the cache.

    There is no prefill and no decode phase: each step moves `num_computed` toward `len(token_ids)` within the
    step's budget. Chunked prefill, prefix hits, preemption (num_computed = 0) and resume are the same line.
    """

    params: GenerationRequest
    token_ids: list[int]
    num_prompt: int
    num_computed: int = 0
    num_cached: int = 0  # prompt tokens whose KV came from the prefix cache, at the first admission
    block_ids: list[int] = field(default_factory=list)
    block_hashes: list[bytes] = field(default_factory=list)  # chained, one for each full block
    status: Status = Status.WAITING
    finish_reason: FinishReason | None = None
    arrival: int = 0  # order of arrival, the tie-breaker among equal priorities
    num_preemptions: int = 0
    max_length: int = 0  # prompt and answer together may not grow beyond this

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.num_prompt

    @property
    def num_pending(self) -> int:
        """Tokens whose KV is still to be computed: 1 while decoding."""
        return len(self.token_ids) - self.num_computed

    @property
    def wants_tokens(self) -> bool:
        """False for max_tokens = 0: the prompt is run, and nothing is sampled."""
        return self.max_length > self.num_prompt

    @property
    def rank(self) -> tuple[int, int]:
        """Smaller goes first, and is preempted last."""
        return self.params.priority, self.arrival

    @property
    def request_id(self) -> str:
        return self.params.request_id
