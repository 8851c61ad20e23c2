"""One request on its way through the gate: what is known about it so far. Decides nothing."""

import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import field

from gateway.heartbeat import Heartbeat
from gateway.ids import new_id
from gateway.ledger.records import AttemptRecord, DecisionRecord, RequestRecord
from gateway.money import WHOLE_PPM, part_of
from gateway.question import NO_DIRECTIVES, Directives
from gateway.tenants.limits import Ticket
from gateway.tenants.types import Principal
from gateway.wire.dialect import PLAIN, Voice
from gateway.wire.inference import Inference
from routing.types import Decision
from semcache.types import Lookup, Question

if TYPE_CHECKING:
    from semcache.vector import Vector

WHOLE_PRICE = (None, WHOLE_PPM)  # of no batch
NOT_ASKED = Lookup(outcome="bypass", reason="not-asked")


class Share(msgspec.Struct, frozen=True, gc=False):
    """A request that is one of a batch's, and pays a part of the price."""

    batch_id: str
    price_ppm: int  # millionths of the price

    def of(self, nanousd: int) -> int:
        return part_of(nanousd, self.price_ppm)


class Passage(msgspec.Struct, eq=False):
    principal: Principal
    inference: Inference
    config_hash: str
    voice: Voice = PLAIN  # how its client wants to read the answer
    namespace: str | None = None
    tier_wanted: str | None = None  # by header
    directives: Directives = NO_DIRECTIVES
    headers: tuple[tuple[str, str], ...] = ()  # the client's, for the upstream
    deadline_s: float | None = None  # for all attempts together; None: the usual one
    batch: Share | None = None  # the batch that it is a line of
    heartbeat: Heartbeat | None = None  # keeps its client's line open meanwhile
    ticket: Ticket = field(default_factory=Ticket)  # that of its admission, later
    id: str = field(default_factory=new_id)
    started_at: float = field(default_factory=time.time)
    started_ns: int = field(default_factory=time.perf_counter_ns)
    question: Question | None = None
    lookup: Lookup = NOT_ASKED
    embedding: "Vector | None" = None  # of the question, computed once for cache and router
    decision: Decision | None = None
    attempts: list[AttemptRecord] = field(default_factory=list)  # closed ones, in order
    first_token_ns: int | None = None
    served_model: str | None = None  # whose answer is on its way
    num_attempts: int = 0  # opened so far
    tokens_used: int = 0  # by all closed calls together: what counts against the tenant's tokens a minute
    cost_nanousd: int = 0  # of all closed calls together: what counts against budgets
    opened: RequestRecord | None = None  # as the journal has it since the first attempt
    record: RequestRecord | None = None  # once finished

    @property
    def latency_ms(self) -> float:
        return (time.perf_counter_ns() - self.started_ns) / 1e6

    @property
    def ttft_ms(self) -> float | None:
        return None if self.first_token_ns is None else (self.first_token_ns - self.started_ns) / 1e6

    def note_first_token(self) -> None:
        if self.first_token_ns is None:
            self.first_token_ns = time.perf_counter_ns()

    def add(self, attempt: AttemptRecord) -> None:
        """A closed call, priced."""
        self.attempts.append(attempt)
        self.tokens_used += attempt.usage.total_tokens
        self.cost_nanousd += attempt.cost_nanousd

    def take_back(self) -> AttemptRecord:
        """The last one, which was added too soon."""
        attempt = self.attempts.pop()
        self.tokens_used -= attempt.usage.total_tokens
        self.cost_nanousd -= attempt.cost_nanousd
        return attempt

    @property
    def answer_id(self) -> str:
        """The `id` of an answer that we make ourselves."""
        return f"{'chatcmpl' if self.inference.endpoint == 'chat.completions' else 'cmpl'}-{self.id}"

    @property
    def question_text(self) -> str:
        """What cache and router read: the user's own last turn, or the prompt."""
        if self.inference.endpoint == "chat.completions":
            return self.inference.last_user_text
        prompt = self.inference.prompts[0] if self.inference.prompts else ""
        return prompt if isinstance(prompt, str) else ""

    def opening(self) -> RequestRecord:
        """The request as the journal notes it before an attempt is dispatched; nothing of it changes after that."""
        if self.opened is not None:
            return self.opened
        principal, inference, lookup = self.principal, self.inference, self.lookup
        tier, reason = (self.decision.tier, self.decision.reason) if self.decision is not None else (None, "")
        batch_id, price_ppm = (self.batch.batch_id, self.batch.price_ppm) if self.batch is not None else WHOLE_PRICE
        return RequestRecord(
            id=self.id,
            tenant_id=principal.tenant.id,
            key_id=principal.key.id,
            endpoint=inference.asked_endpoint,
            requested_model=inference.model,
            started_at=self.started_at,
            tier=tier,
            stream=inference.stream,
            cache=lookup.outcome,
            cache_reason=lookup.reason,
            similarity=lookup.similarity,
            route_reason=reason,
            namespace=self.namespace,
            user=inference.user,
            config_hash=self.config_hash,
            batch_id=batch_id,
            price_ppm=price_ppm,
        )

    def decision_record(self) -> DecisionRecord | None:
        """What cache and router may learn from later, as far as the tenant lets it be kept."""
        capture = self.principal.tenant.capture
        decision = self.decision
        embedding = self.embedding
        if capture == "off" or decision is None or (embedding is None and not decision.signals.features):
            return None  # a client's explicit choice teaches nothing without the question's vector
        return DecisionRecord(
            request_id=self.id,
            tier=decision.tier,
            reason=decision.reason,
            confidence=decision.confidence,
            task=decision.signals.task,
            signals=msgspec.json.encode(decision.signals),
            embedding=None if embedding is None else embedding.astype("<f2").tobytes(),
            text=self.question_text if capture == "text" else None,
        )
