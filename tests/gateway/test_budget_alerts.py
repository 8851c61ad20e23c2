"""A budget's marks are told once in a period: signed, in the background, again after a failure, by one gateway."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import text

from gateway.store.database import Database
from gateway.tenants.alerts import Alerts
from gateway.tenants.budgets import set_budget
from gateway.tenants.outbox import NUM_WORKERS, Outbox
from gateway.tenants.periods import period_at
from gateway.tenants.registry import create_tenant
from gateway.tenants.tally import Balance
from gateway.tenants.terms import Allowance, Owner
from gateway.tenants.types import Budget
from gateway.upstream.webhook import WebhookClient, WebhookFailed

pytestmark = pytest.mark.anyio
SECRET = "whsec-for-tests"
USD = 10**9


@dataclass
class Receiver:
    """A real HTTP server that answers as it is told."""

    answers: list[bytes] = field(default_factory=list)  # status lines, then headers; "200 OK" once they are used up
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        self.received.append((headers, await reader.readexactly(int(headers["content-length"]))))
        status = self.answers.pop(0) if self.answers else b"200 OK"
        if status == b"silence":
            await reader.read()
        else:
            writer.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % status)
        writer.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.01)

    @property
    def messages(self) -> list[Any]:
        return [json.loads(body) for _, body in self.received]


@pytest.fixture
async def receiver(anyio_backend: Any) -> AsyncIterator[Receiver]:
    made = Receiver()
    async with await asyncio.start_server(made.answer, "127.0.0.1", 0) as server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        yield made


@pytest.fixture
async def database(sqlite_url: str) -> AsyncIterator[Database]:
    async with opened(sqlite_url) as made:
        yield made


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    made = Database(url)
    await made.open()
    yield made
    await made.aclose()


def client(**options: Any) -> WebhookClient:
    return WebhookClient(SECRET, **{"allow_private": True, "timeout_s": 1.0, **options})


def outbox(database: Database, url: str = "", **options: Any) -> Outbox:
    made = Outbox(database, client(), url, **{"backoff_s": (0.01, 0.01, 0.01), "look_s": 0.05, **options})
    made.start()
    return made


async def new_budget(database: Database, **fields: Any) -> Budget:
    await create_tenant(database, "acme")
    fields = {"period": "month", "amount_nanousd": 10 * USD, "allow_private_webhooks": True, **fields}
    return await set_budget(database, "acme", **fields)


def balance(budget: Budget, spent: int, wanted: int = 0) -> Balance:
    allowance = Allowance(Owner(budget.owner_kind, budget.owner_id), budget.period, (budget,))
    return Balance(allowance, period_at(budget.period, time.time()), spent, 0, wanted)


async def test_each_mark_is_told_once_with_all_that_one_wants_to_know(database: Database, receiver: Receiver) -> None:
    budget = await new_budget(database)
    box = outbox(database, receiver.url)
    alerts = Alerts(box.put)
    alerts.spent((balance(budget, 7 * USD),))
    for spent in (8 * USD, 8 * USD + 1, 9 * USD):
        alerts.spent((balance(budget, spent),))
    await receiver.until(lambda: len(receiver.received) == 1)
    Alerts(box.put).spent((balance(budget, 9 * USD),))  # after a restart
    alerts.refused(balance(budget, 9 * USD, wanted=2 * USD))
    alerts.spent((balance(budget, 11 * USD),))
    await receiver.until(lambda: len(receiver.received) == 3)
    await box.aclose()
    first = receiver.messages[0]
    assert {message["event"] for message in receiver.messages[1:]} == {"budget.refused", "budget.warning"}
    assert first == {
        "id": first["id"],
        "event": "budget.warning",
        "time": first["time"],
        "tenant": {"id": budget.tenant_id, "name": "acme"},
        "budget": {
            "id": budget.id,
            "owner": {"kind": "tenant", "id": budget.owner_id, "name": "acme"},
            "period": "month",
            "hard": True,
        },
        "period": period_at("month", time.time()).label,
        "percent": 80,
        "spent_usd": "8.0",
        "limit_usd": "10.0",
    }


async def test_a_message_is_signed(receiver: Receiver) -> None:
    sender = client()
    await sender.post(receiver.url, "budget.warning", b'{"a":1}')
    await sender.aclose()
    ((headers, body),) = receiver.received
    at, _, signature = headers["x-tollhouse-signature"].partition(",v1=")
    seconds = at.removeprefix("t=")
    assert abs(time.time() - int(seconds)) < 60
    assert signature == hmac.new(SECRET.encode(), seconds.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert (headers["content-type"], headers["x-tollhouse-event"]) == ("application/json", "budget.warning")


@pytest.mark.parametrize(
    ("status", "again"),
    [(b"500 Oops", True), (b"429 Later", True), (b"404 No", False), (b"silence", True), (b"garbage", True)],
)
async def test_what_is_not_taken_is_tried_again_where_that_may_help(
    database: Database, receiver: Receiver, status: bytes, again: bool
) -> None:
    receiver.answers = [status]
    budget = await new_budget(database)
    box = outbox(database, receiver.url, look_s=60.0)
    Alerts(box.put).spent((balance(budget, 8 * USD),))
    await receiver.until(lambda: len(receiver.received) == 1 + again)
    await box.aclose()
    assert len({message["id"] for message in receiver.messages}) == 1  # by which a receiver knows it again


async def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.answers = [b"302 Found\r\nlocation: " + receiver.url.encode()]
    sender = client()
    with pytest.raises(WebhookFailed, match="302"):
        await sender.post(receiver.url, "e", b"{}")
    await sender.aclose()
    assert len(receiver.received) == 1


async def test_a_private_address_is_not_posted_to_unless_that_is_allowed(receiver: Receiver) -> None:
    sender = client(allow_private=False)
    for url in (receiver.url, receiver.url.replace("127.0.0.1", "localhost"), "http://[::ffff:7f00:1]/"):
        with pytest.raises(WebhookFailed, match="not a public address") as refused:
            await sender.post(url, "e", b"{}")
        assert not refused.value.worth_retrying
    await sender.aclose()
    assert receiver.received == []


async def test_a_name_that_no_resolver_takes_stops_nobody_elses_message(database: Database, receiver: Receiver) -> None:
    marks = tuple(range(1, 1 + NUM_WORKERS))
    budget = await new_budget(database, webhook_url=f"http://{'a' * 64}.example/hook", warn_percents=marks)
    sender = client()
    with pytest.raises(WebhookFailed, match="can't be a host's name"):
        await sender.post(budget.webhook_url, "e", b"{}")
    await sender.aclose()
    box = outbox(database, receiver.url, look_s=60.0, backoff_s=())
    alerts = Alerts(box.put)
    alerts.spent((balance(budget, 10 * USD),))
    other = await set_budget(database, "acme", period="day", amount_nanousd=USD)
    alerts.refused(balance(other, USD, wanted=1))
    await receiver.until(lambda: len(receiver.received) == 1)
    await box.aclose()


async def test_two_gateways_tell_it_once(database_url: str, receiver: Receiver) -> None:
    async with opened(database_url) as database, opened(database_url) as other:
        budget = await new_budget(database, webhook_url=receiver.url)
        boxes = [outbox(database), outbox(other)]
        for box in boxes * 3:
            Alerts(box.put).spent((balance(budget, 20 * USD),))
        await receiver.until(lambda: len(receiver.received) == 2)
        await asyncio.sleep(0.2)
        for box in boxes:
            await box.aclose()
    assert sorted(message["percent"] for message in receiver.messages) == [80, 100]


async def test_what_was_not_delivered_is_taken_up_again(database: Database, receiver: Receiver) -> None:
    budget = await new_budget(database)
    receiver.answers = [b"500 Oops"] * 4
    first = outbox(database, receiver.url, look_s=60.0)
    Alerts(first.put).spent((balance(budget, 8 * USD),))
    await receiver.until(lambda: len(receiver.received) == 4)
    await first.aclose()
    second = outbox(database, receiver.url)
    await receiver.until(lambda: len(receiver.received) == 5)
    await asyncio.sleep(0.3)
    await second.aclose()
    assert len(receiver.received) == 5  # and then no more
    async with database.read() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM budget_alerts WHERE delivered_at IS NOT NULL")) == 1


async def test_a_changed_budget_warns_anew_and_a_removed_one_never(database: Database, receiver: Receiver) -> None:
    old = await new_budget(database)
    box = outbox(database, receiver.url)
    alerts = Alerts(box.put)
    alerts.spent((balance(old, 8 * USD),))
    await receiver.until(lambda: len(receiver.received) == 1)
    new = await set_budget(database, "acme", period="month", amount_nanousd=20 * USD)
    alerts.spent((balance(new, 16 * USD),))
    await receiver.until(lambda: len(receiver.received) == 2)
    alerts.spent((balance(old, 12 * USD),))
    await asyncio.sleep(0.2)
    await box.aclose()
    assert [message["limit_usd"] for message in receiver.messages] == ["10.0", "20.0"]
    async with database.read() as connection:
        left = await connection.scalars(text("SELECT DISTINCT budget_id FROM budget_alerts"))
        assert list(left) == [new.id]
