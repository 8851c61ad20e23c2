"""One provider and requests against any list of its models, for the tests of attempts, retries and fleets."""

import json
from typing import Any

from gateway.ledger.records import AttemptRecord
from gateway.upstream.attempts import Deployment, Fleet, Served, run
from gateway.upstream.breaker import Breaker
from gateway.upstream.http_backend import HttpBackend
from gateway.upstream.types import Outbound
from gateway.wire.chat import parse_chat
from tests.faults.misbehaving import MisbehavingUpstream


class Books:
    """Keeps what the observer is told, in order."""

    def __init__(self) -> None:
        self.opened: list[AttemptRecord] = []
        self.closed: list[AttemptRecord] = []

    def attempt_opened(self, record: AttemptRecord) -> None:
        self.opened.append(record)

    def attempt_closed(self, record: AttemptRecord) -> None:
        assert record.id in {opened.id for opened in self.opened}
        assert record.id not in {closed.id for closed in self.closed}
        self.closed.append(record)


class House:
    """One provider, and a request against any list of its models."""

    def __init__(self, upstream: MisbehavingUpstream, backend: HttpBackend) -> None:
        self.upstream = upstream
        self.backend = backend
        self.books = Books()

    def deployment(self, behaviour: str, retries: int = 0, breaker: Breaker | None = None) -> Deployment:
        return Deployment(f"our-{behaviour}", self.backend, behaviour, breaker or Breaker(), retries)

    async def ask(self, *candidates: Deployment | Fleet, stream: bool = False, **options: Any) -> Served:
        body = {"model": "ours", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
        inference = parse_chat(json.dumps(body).encode())

        def outbound_for(deployment: Deployment) -> Outbound:
            return Outbound(
                request_id="r1",
                inference=inference,
                upstream_model=deployment.upstream_model,
                timeouts=deployment.timeouts,
            )

        fleets = [each if isinstance(each, Fleet) else Fleet([each]) for each in candidates]
        return await run(fleets, outbound_for, self.books, stream=stream, **options)

    def sent(self, behaviour: str) -> int:
        return len(self.upstream.of(behaviour))


def error_of(served: Served) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(served.reply.body or b"")["error"]
    return error
