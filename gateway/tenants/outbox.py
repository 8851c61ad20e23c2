"""Alerts on their way to webhooks, in the background: each is claimed in SQL first, so that it is told once.

What could not be delivered in the end, or was claimed by a gateway that died, is taken up again for a day.
"""

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.money import dollars
from gateway.store import alerts as store
from gateway.store.alerts import Pending
from gateway.store.database import Database
from gateway.store.errors import RowRefused, StoreError
from gateway.tenants.alerts import REFUSED, Alert
from gateway.upstream.webhook import WebhookClient, WebhookFailed

log = logging.getLogger("tollhouse.budgets")
MAX_QUEUED = 1000
NUM_WORKERS = 4
BACKOFF_S = (1.0, 5.0, 30.0)  # between the tries of one claim
LOOK_S = 300.0  # for what was left over
STORE_RETRY_S = 1.0


class Outbox:
    """`start` before use, `aclose` after. `url` is for budgets that name none; without either, nobody is told."""

    def __init__(
        self,
        database: Database,
        client: WebhookClient | None,
        url: str = "",
        *,
        backoff_s: Sequence[float] = BACKOFF_S,
        look_s: float = LOOK_S,
    ) -> None:
        """`client`: None where there is no secret to sign with; alerts are noted all the same."""
        self._url = url
        self._client = client
        self._database = database
        self._backoff_s = tuple(backoff_s)
        self._look_s = look_s
        self._queue: asyncio.Queue[Alert] = asyncio.Queue(MAX_QUEUED)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        works = [self._work_off() for _ in range(NUM_WORKERS)] + [self._take_up_again()]
        self._tasks = [asyncio.create_task(work, name="budget alerts") for work in works]

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    async def reconfigure(self, client: WebhookClient | None, url: str) -> None:
        """After a change of the config. A message under way is tried again with the new client."""
        before, self._client, self._url = self._client, client, url
        if before is not None:
            await before.aclose()

    def put(self, alert: Alert) -> None:
        try:
            self._queue.put_nowait(alert)
        except asyncio.QueueFull:
            log.error("too many alerts at once: one of budget %s is lost", alert.budget.id)

    async def _work_off(self) -> None:
        while True:
            alert = await self._queue.get()
            try:
                if (pending := await self._claim(alert)) is not None:
                    log.warning("%s", _in_words(pending))
                    await self._deliver(pending)
            except Exception as error:  # of ours: those that follow are told all the same
                log.exception("an alert of budget %s failed", alert.budget.id, exc_info=error)

    async def _claim(self, alert: Alert) -> Pending | None:
        """None: it has been told already, or its budget is gone."""
        while True:
            try:
                return await store.claim(
                    self._database, alert.budget.id, alert.period.label, alert.mark, alert.spent_nanousd, alert.at
                )
            except RowRefused:
                raise  # for good
            except StoreError as error:
                log.warning("an alert waits for the database: %s", error)
                await asyncio.sleep(STORE_RETRY_S)

    async def _deliver(self, pending: Pending) -> None:
        url = pending.budget.webhook_url or self._url
        event = "budget.refused" if pending.mark == REFUSED else "budget.warning"
        body = msgspec.json.encode(_message(pending, event))
        for wait_s in (*self._backoff_s, None):
            if not url or (client := self._client) is None:
                return
            try:
                await client.post(url, event, body)
                await store.note_delivered(self._database, pending.id)
                return
            except WebhookFailed as error:
                log.warning("webhook of budget %s: %s", pending.budget.id, error)
                if wait_s is None or not error.worth_retrying:
                    return
                await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
            except StoreError as error:
                log.warning("webhook of budget %s was delivered, but that can't be noted: %s", pending.budget.id, error)
                return

    async def _take_up_again(self) -> None:
        while True:
            try:
                for pending in await store.claim_left_over(self._database, older_than_s=2 * self._look_s):
                    await self._deliver(pending)
            except StoreError as error:
                log.warning("alerts that were left over can't be read: %s", error)
            except Exception as error:
                log.exception("alerts that were left over failed", exc_info=error)
            await asyncio.sleep(self._look_s * random.uniform(0.8, 1.2))


def _message(pending: Pending, event: str) -> dict[str, Any]:
    budget = pending.budget
    return {
        "id": pending.id,
        "event": event,
        "time": datetime.fromtimestamp(pending.reached_at, UTC).isoformat(timespec="milliseconds"),
        "tenant": {"id": budget.tenant_id, "name": pending.tenant_name},
        "budget": {
            "id": budget.id,
            "owner": {"kind": budget.owner_kind, "id": budget.owner_id, "name": pending.owner_name},
            "period": budget.period,
            "hard": budget.hard,
        },
        "period": pending.period,
        "percent": pending.mark or None,
        "spent_usd": dollars(pending.spent_nanousd),
        "limit_usd": dollars(budget.amount_nanousd),
    }


def _in_words(pending: Pending) -> str:
    budget = pending.budget
    whose = f"tenant {pending.tenant_name}"
    if budget.owner_kind != "tenant":
        whose = f"{budget.owner_kind} {pending.owner_name} of {whose}"
    spent = f"${dollars(pending.spent_nanousd)} of ${dollars(budget.amount_nanousd)} spent in {pending.period}"
    what = "refused a request" if pending.mark == REFUSED else f"has come to {pending.mark}%"
    return f"the {budget.period}'s budget of {whose} {what}: {spent}"
