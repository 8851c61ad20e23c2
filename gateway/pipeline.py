"""One request from top to bottom: the file to read first.

authenticate, parse, admit, look up, choose, reserve, attempt, relay, settle: each is a line or two in `answer` and
`_serve`; what a step does lives in its own room. Knows no HTTP beyond a header look-up and the answer it returns.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from gateway.answer import (
    EVENT_STREAM,
    Answer,
    StreamAnswer,
    error_answer,
    stream_head,
)
from gateway.bookkeeping import Observer
from gateway.byte_relay import byte_stream
from gateway.departure import Departure
from gateway.errors import ApiError, ClientClosedRequest, InternalError
from gateway.estimates import usage_of_unreported, worst_case
from gateway.headers import describe, settle_up, settle_up_comment
from gateway.heartbeat import Heartbeat
from gateway.house import House, Snapshot
from gateway.ledger.records import Status
from gateway.passage import Passage, Share
from gateway.recall import discard, keep, look_up
from gateway.relay import Relay
from gateway.routes import choose, deadline_s, explicit, longest_answer
from gateway.tenants.gatekeeper import Incoming
from gateway.tenants.types import Principal
from gateway.upstream import attempts
from gateway.upstream.attempts import Deployment, Served
from gateway.upstream.passing import RAW
from gateway.upstream.types import Outbound
from gateway.whole import as_wanted, has_begun
from gateway.wire.dialect import Dialect
from gateway.wire.replay import replay, rewrite_identity
from gateway.wishes import Wishes
from semcache.types import StoredAnswer

log = logging.getLogger("tollhouse.pipeline")

BATCH_PRIORITY = 2  # in the bundled engine: after everybody, those of service_tier "flex" as well


class Pipeline:
    def __init__(self, house: House) -> None:
        self._house = house
        self._deadline_s = house.snapshot.config.server.deadline_s or None

    async def answer(
        self,
        dialect: Dialect,
        raw: bytes,
        header: Incoming,
        receive: Any,
        on_admitted: Callable[[], Awaitable[None]] | None = None,
        heartbeat: Heartbeat | None = None,
    ) -> Answer | StreamAnswer:
        """Raises ApiError for what is refused at the gate; once admitted, a request always gets its record."""
        self._house.doors.check()
        principal = await self._house.authenticator.identify(header("authorization"), header)
        return await self.answer_to(principal, dialect, raw, header, receive, on_admitted, heartbeat)

    async def answer_to(
        self,
        principal: Principal,
        dialect: Dialect,
        raw: bytes,
        header: Incoming,
        receive: Any,
        on_admitted: Callable[[], Awaitable[None]] | None = None,
        heartbeat: Heartbeat | None = None,
        batch: Share | None = None,
    ) -> Answer | StreamAnswer:
        """The same for a caller who is known. `batch`: it is a line of one."""
        house, snapshot = self._house, self._house.snapshot  # one config for the whole request
        inference, wishes = dialect.parse(raw), Wishes.of(header)
        passage = Passage(
            principal=principal,
            inference=inference,
            config_hash=snapshot.config.hash,
            namespace=wishes.namespace,
            tier_wanted=wishes.tier,
            directives=wishes.directives,
            headers=wishes.forwarded,
            batch=batch,
            heartbeat=heartbeat,
            deadline_s=deadline_s(wishes.timeout_s, self._deadline_s),
        )
        passage.voice = dialect.voice(inference, passage.id)
        passage.ticket = await house.limiter.admit(principal, passage.id, passage.started_at)
        if wishes.dry_run:
            return await self._dry_run(passage, snapshot)
        try:
            if on_admitted is not None:
                await on_admitted()
            with Departure(receive, house.doors) as departure:  # work stops when its client leaves, or has to
                if heartbeat is not None and inference.stream:
                    _begin_stream(passage, heartbeat, departure)
                return await self._serve(passage, snapshot)
        except ApiError as error:
            return await self._refuse(passage, error)
        except Exception as error:
            log.exception("request %s failed inside the gateway", passage.id, exc_info=error)
            return await self._refuse(passage, InternalError(f"the gateway failed on request {passage.id}"))
        except BaseException:  # cancelled from outside: the server is shutting down
            await self._refuse(passage, ClientClosedRequest("the gateway was stopped"))
            raise

    async def _serve(self, passage: Passage, snapshot: Snapshot) -> Answer | StreamAnswer:
        house = self._house
        decided = explicit(passage, snapshot)
        await look_up(passage, house, snapshot, embed=decided is None)
        if (stored := passage.lookup.answer) is not None and (body := self._replayable(passage, stored)) is not None:
            return await self._replay(passage, body)
        passage.decision = decided or await choose(passage, house, snapshot)
        await self._reserve(passage, snapshot)
        served = await self._attempt(passage, snapshot)
        if served.reply.format is RAW:
            return byte_stream(passage, served, house)
        if served.is_stream:
            return StreamAnswer(Relay(passage, served, house), describe(passage), house.doors)
        return await self._whole(passage, served)

    async def _reserve(self, passage: Passage, snapshot: Snapshot) -> None:
        """The tokens and the dollars of the worst case, at the dearest of the models that may serve."""
        assert passage.decision is not None
        ticket, usage = passage.ticket, worst_case(passage.inference, longest_answer(passage, snapshot))
        models = passage.decision.candidates
        cost = self._house.prices.dearest_nanousd(models, usage) if ticket.counts_dollars else 0
        if passage.batch is not None:
            cost = passage.batch.of(cost)
        await ticket.reserve(usage.total_tokens, cost)

    async def _dry_run(self, passage: Passage, snapshot: Snapshot) -> Answer:
        """The decision alone: no model is called, nothing is cached or charged."""
        try:
            decision = explicit(passage, snapshot) or await choose(passage, self._house, snapshot)
        finally:
            await passage.ticket.settle()
        passage.decision = decision
        body = {"object": "tollhouse.decision"} | msgspec.to_builtins(decision, enc_hook=list)
        return Answer(msgspec.json.encode(body), headers=describe(passage))

    async def _attempt(self, passage: Passage, snapshot: Snapshot) -> Served:
        assert passage.decision is not None
        catalog, tenant = snapshot.catalog, passage.principal.tenant

        def outbound_for(deployment: Deployment) -> Outbound:
            return Outbound(
                request_id=passage.id,
                inference=passage.inference,
                upstream_model=deployment.upstream_model,
                timeouts=deployment.timeouts,
                cache_salt=tenant.id,
                fairness_key=tenant.id,
                priority=BATCH_PRIORITY if passage.batch is not None else 0,
                headers=passage.headers,
                longest_answer=tenant.default_max_tokens or catalog.max_output_tokens(deployment.model),
            )

        fleets = [catalog.fleet(model) for model in passage.decision.candidates]
        observer = Observer(passage, self._house.bookkeeper)
        stream = passage.inference.stream
        served = await attempts.run(fleets, outbound_for, observer, stream=stream, deadline_s=passage.deadline_s)
        passage.served_model = served.deployment.model
        passage.voice = served.reply.format.voice(passage.id) or passage.voice
        return served

    async def _whole(self, passage: Passage, served: Served) -> Answer:
        """A whole answer, or an upstream's refusal that passes as it came."""
        bookkeeper, reply = self._house.bookkeeper, served.reply
        passage.note_first_token()
        body, ok = reply.body or b"", reply.status < 300
        if ok and not served.record.usage.total_tokens:
            bookkeeper.correct(passage, usage_of_unreported(passage.inference, reply.format.text_length(body)))
        answer = as_wanted(passage, reply, body)  # before it is booked: another API may have no words for it
        if ok:
            record = bookkeeper.settle(passage)
        else:
            record = bookkeeper.settle(
                passage, status="error", http_status=reply.status, error_code=f"http_{reply.status}"
            )
        await passage.ticket.settle(passage.tokens_used, passage.cost_nanousd)
        if ok and (stored := reply.format.stored(body)) is not None:
            await keep(passage, self._house, stored, record)
        answer.headers += [*describe(passage), *settle_up(record)]
        return answer

    def _replayable(self, passage: Passage, stored: StoredAnswer) -> bytes | None:
        """A stored answer under a new identity, as a stream if the client asked for one; None if it can't be."""
        try:
            body = rewrite_identity(stored.body, passage.answer_id, int(passage.started_at))
            if not passage.inference.stream:
                return passage.voice.whole(body)
            *payloads, _done = replay(body, include_usage=passage.inference.include_usage)
            return passage.voice.events(payloads)
        except ValueError as error:
            discard(passage, self._house, stored, str(error))
            return None

    async def _replay(self, passage: Passage, body: bytes) -> Answer:
        passage.note_first_token()
        record = self._house.bookkeeper.settle(passage)
        await passage.ticket.settle()
        headers = [*describe(passage), *settle_up(record)]
        if not passage.inference.stream:
            return Answer(body, headers=headers)
        return Answer(
            body + settle_up_comment(record) + passage.voice.end(), content_type=EVENT_STREAM, headers=headers
        )

    async def _refuse(self, passage: Passage, error: ApiError) -> Answer:
        status: Status = "cancelled" if isinstance(error, ClientClosedRequest) else "error"
        record = self._house.bookkeeper.settle(passage, status=status, http_status=error.status, error_code=error.name)
        await passage.ticket.settle(passage.tokens_used, passage.cost_nanousd)
        if has_begun(passage):
            return Answer(passage.voice.broken(error), content_type=EVENT_STREAM)
        headers = [*describe(passage), *settle_up(record)]
        return error_answer(error, headers, encode=passage.voice.error)


def _begin_stream(passage: Passage, heartbeat: Heartbeat, departure: Departure) -> None:
    """From now on its client hears something, and is let go when it does not listen."""
    heartbeat.on_stuck = departure.stop
    heartbeat.begin(lambda: stream_head(describe(passage)))
