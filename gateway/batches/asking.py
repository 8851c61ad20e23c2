"""One line of a batch through the pipeline, as if its client had sent it; told to come back later, it does."""

import asyncio
import logging
from datetime import UTC, datetime

from gateway.answer import Answer
from gateway.api.inference import CHAT, COMPLETIONS, EMBEDDINGS
from gateway.batches.capacity import IdleCapacity
from gateway.batches.types import Batch, Result
from gateway.errors import ApiError, InternalError
from gateway.house import House
from gateway.ids import new_id
from gateway.passage import Share
from gateway.pipeline import Pipeline
from gateway.responses.run import nobody_leaves
from gateway.store.errors import StoreError
from gateway.wire.batch_lines import Line, output_line
from gateway.wire.dialect import Dialect
from gateway.wire.responses_api.dialect import ResponsesDialect
from gateway.wire.responses_api.request import parse_create

log = logging.getLogger("tollhouse.batches")

LATER = (429, 503)
MAX_TRIES = 12
FIRST_WAIT_S, MAX_WAIT_S = 0.25, 60.0
_DIALECTS: dict[str, Dialect] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/embeddings": EMBEDDINGS,
}


class PutBack(Exception):
    """The gateway stops: the line is for whoever goes on with the batch."""


class Asking:
    """Asks the lines of all batches of a process."""

    def __init__(self, house: House, pipeline: Pipeline, capacity: IdleCapacity) -> None:
        self._house = house
        self._pipeline = pipeline
        self._capacity = capacity

    async def ask(self, batch: Batch, number: int, line: Line) -> Result:
        """Raises PutBack."""
        num_tries = 0
        while True:
            async with self._capacity.place():
                answer, request_id = await self._answer(batch, line)
            num_tries += 1
            if self._house.doors.closed and answer.status >= 400:
                raise PutBack
            if answer.status not in LATER or num_tries == MAX_TRIES:
                break
            wait_s = _asked_wait_s(answer) or min(FIRST_WAIT_S * 2**num_tries, MAX_WAIT_S)
            if not _may_wait(answer, wait_s, batch):
                break
            await asyncio.sleep(wait_s)
        told = output_line(line.custom_id, request_id, answer.status, answer.body)
        return Result(number, answer.status < 300, told)

    async def _answer(self, batch: Batch, line: Line) -> tuple[Answer, str]:
        """With the id that the request has in the books."""
        try:
            told = await self._send(batch, line)
        except ApiError as error:  # refused at the gate
            return _refused(error), new_id()
        except StoreError:  # the whole batch waits for the database
            raise
        except Exception as error:  # the other lines are not to be asked again and again for its sake
            log.exception("a line of %s failed inside the gateway", batch.id, exc_info=error)
            return _refused(InternalError("The gateway failed on this request.")), new_id()
        ids = [value.decode() for name, value in told.headers if name == b"x-request-id"]
        return told, ids[0] if ids else new_id()

    async def _send(self, batch: Batch, line: Line) -> Answer:
        house, raw = self._house, bytes(line.body)
        house.doors.check()
        principal = house.authenticator.recall(batch.key_id, line.url)
        share = Share(batch.id, round(house.snapshot.config.batch.price_factor * 1_000_000))
        dialect = _DIALECTS.get(line.url) or await self._responses_dialect(batch.tenant_id, raw)
        told = await self._pipeline.answer_to(principal, dialect, raw, _NoHeaders(), nobody_leaves, batch=share)
        assert isinstance(told, Answer), "a line that asks for a stream is refused beforehand"
        return told

    async def _responses_dialect(self, tenant_id: str, raw: bytes) -> Dialect:
        """Its response stands in the output file, and is stored nowhere else."""
        creation = parse_create(raw, f"resp_{new_id()}", may_store=False)
        max_bytes = int(self._house.snapshot.config.server.max_body_mb * 1_000_000)
        conversation, _ = await self._house.responses.history.conversation(tenant_id, creation, max_bytes)
        return ResponsesDialect(creation, conversation)


class _NoHeaders:
    """Implements `gateway.tenants.gatekeeper.Incoming` for a request that came in a file."""

    path = ""
    peer = None

    def __call__(self, name: str) -> str | None:
        return None

    def any_of(self, names: frozenset[bytes]) -> bool:
        return False

    def lines(self, name: str) -> list[str]:
        return []


def _header(answer: Answer, name: bytes) -> bytes:
    return next((value for known, value in answer.headers if known == name), b"")


def _asked_wait_s(answer: Answer) -> float | None:
    value = _header(answer, b"retry-after").decode()
    return float(value) if value.isascii() and value.isdigit() else None


def _may_wait(answer: Answer, wait_s: float, batch: Batch) -> bool:
    left_s = (batch.expires_at - datetime.now(UTC)).total_seconds()
    return _header(answer, b"x-should-retry") != b"false" and wait_s <= min(MAX_WAIT_S, left_s)


def _refused(error: ApiError) -> Answer:
    headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
    return Answer(error.encode(), status=error.status, headers=headers)
