"""One sequence from arrival to its last token: plain state, owned by the scheduler's thread. Knows no torch."""

import enum
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.types import FinishReason, GenerationRequest


class Status(enum.Enum):
    NEW = "new"  # not queued yet: a further choice, while the first one computes the prompt
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class TokenMatcher(Protocol):
    """What is asked of a grammar's state, `engine.grammar.Matcher`: one for each choice."""

    @property
    def error(self) -> str: ...

    def fill_mask(self, row: Any) -> None: ...

    def give_up(self, why: str) -> None: ...

    def accept(self, token_id: int) -> None: ...

    def fork(self) -> "TokenMatcher": ...


@dataclass(slots=True, eq=False)
class Request:
    """`token_ids` is the prompt and what was generated; `num_computed` of them have their KV in the cache.

    There is no prefill and no decode phase: each step moves `num_computed` toward `len(token_ids)` within the
    step's budget. Chunked prefill, prefix hits, forks, preemption and resume are the same line.
    """

    params: GenerationRequest
    token_ids: list[int]
    num_prompt: int
    num_computed: int = 0
    num_cached: int = 0  # prompt tokens whose KV came from the prefix cache, at the first admission
    block_ids: list[int] = field(default_factory=list)
    host_block_ids: list[int] = field(default_factory=list)  # while swapped out: where its computed KV lies
    block_hashes: list[bytes] = field(default_factory=list)  # chained, one for each full block
    prompt_hashes: list[bytes] = field(default_factory=list)  # the same, as if all of it were a prompt
    num_registered: int = 0  # of its full blocks, those that the prefix cache has been told of
    uses_cached_prefix: bool = True  # False while every token of the prompt must be run, for what comes out of it
    status: Status = Status.NEW
    finish_reason: FinishReason | None = None
    priority: int = field(init=False)  # its own, or a better one that it was lifted to
    queued_at: int = 0  # the step
    turn: int = 0  # order of arrival while it waits, order of admission afterwards
    index: int = 0  # which of the choices it is
    group: list["Request"] = field(default_factory=list)  # all choices for its prompt, in one shared list; [] if alone
    shows_logprobs: bool = False  # False when they are taken only to tell which choices are the best
    matcher: TokenMatcher | None = None
    num_preemptions: int = 0
    compute_ns: int = 0  # its share of the steps so far, and in the first choice those of the others
    max_length: int = 0  # prompt and answer together may not grow beyond this
    max_blocks: int = 0  # that many tokens take so many blocks

    def __post_init__(self) -> None:
        self.priority = self.params.priority

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.num_prompt

    @property
    def num_pending(self) -> int:
        """Tokens whose KV is still to be computed: 1 while decoding."""
        return len(self.token_ids) - self.num_computed

    @property
    def wants_tokens(self) -> bool:
        """False for max_tokens = 0 and for embeddings: the prompt is run, and nothing is sampled."""
        return self.max_length > self.num_prompt

    @property
    def had_its_turn(self) -> bool:
        """It was admitted before, or the first choice for its prompt was."""
        return self.num_preemptions > 0 or self.index > 0

    @property
    def rank(self) -> tuple[int, int, int]:
        """Smaller goes first, and is preempted last."""
        return self.priority, self.turn, self.index

    @property
    def first_choice(self) -> "Request":
        """The request as its caller knows it; the others are further choices."""
        return self.group[0] if self.group else self

    @property
    def choices(self) -> list["Request"]:
        return self.group or [self]

    @property
    def request_id(self) -> str:
        return self.params.request_id
