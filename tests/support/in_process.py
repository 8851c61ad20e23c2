"""A gateway without a server: the real parts of one House, and requests that go straight into its pipeline."""

import asyncio
import itertools
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gateway.answer import Answer, encode_headers
from gateway.api.errors import turn_away
from gateway.api.incoming import Headers
from gateway.build import apply, open_house
from gateway.config import Config, home, parse
from gateway.errors import ApiError
from gateway.heartbeat import Heartbeat
from gateway.house import House
from gateway.ledger.records import RequestRecord
from gateway.pipeline import Pipeline
from gateway.tenants.registry import create_key, create_tenant
from gateway.tenants.types import Limits
from gateway.wire.chat import parse_chat
from gateway.wire.dialect import Dialect, PlainDialect
from gateway.wire.inference import Inference
from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.probes import EMBED, PROBE

CONFIG = (
    """
baseline_model = "dear"
[cache]
semantic = false
[[provider]]
name = "upstream"
base_url = "{upstream}"
max_retries = 0
[[provider]]
name = "hasty"
base_url = "{upstream}"
max_retries = 0
first_token_timeout_s = 0.3
idle_timeout_s = 0.3
total_timeout_s = 0.6
[[provider]]
name = "nowhere"
base_url = "http://127.0.0.1:9/v1"
max_retries = 0
[[provider]]
name = "keyless"
base_url = "{upstream}"
api_key_env = "A_KEY_THAT_NOBODY_SETS"
[[model]]
name = "dear"
provider = "upstream"
upstream_name = "ok"
input_usd_per_mtok = 10.0
output_usd_per_mtok = 20.0
[[model]]
name = "dead"
provider = "upstream"
upstream_name = "500"
[[model]]
name = "hasty/*"
provider = "hasty"
input_usd_per_mtok = 1.0
output_usd_per_mtok = 2.0
[[model]]
name = "nowhere"
provider = "nowhere"
input_usd_per_mtok = 1.0
[[model]]
name = "locked/*"
provider = "keyless"
"""
    + PROBE
    + EMBED
)


class Line:
    """One client's connection, as ASGI has it: it hears what is sent, and may leave or break down."""

    def __init__(self, breaks_at: int | None = None, leaves_after: bytes | None = None) -> None:
        """`breaks_at`: the number of the message whose `send` fails. `leaves_after`: bytes that make the client go."""
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.body = b""
        self.closed = False  # the last message has come
        self._breaks_at = breaks_at
        self._leaves_after = leaves_after
        self._num_messages = 0
        self._left = asyncio.Event()

    def leave(self) -> None:
        self._left.set()

    async def receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        number, self._num_messages = self._num_messages, self._num_messages + 1
        if number == self._breaks_at:
            raise OSError("the connection is gone")
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
            return
        self.body += message["body"]
        self.closed = not message["more_body"]
        if self._leaves_after is not None and self._leaves_after in self.body:
            self.leave()

    def __getitem__(self, name: str) -> str:
        """A header that came exactly once."""
        (value,) = [value for known, value in self.headers if known == name]
        return value

    def get(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known == name), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error

    @property
    def events(self) -> list[Any]:
        """The payloads of an event stream that ended as it should."""
        lines = [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: ")]
        assert lines[-1] == b"[DONE]"
        return [json.loads(line) for line in lines[:-1]]

    @property
    def text(self) -> str:
        """What an event stream says."""
        deltas = [choice["delta"] for event in self.events for choice in event["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)


def chat(model: str = "probe/ok", text: str = "Where is the harbour?", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]} | fields


@dataclass
class Gate:
    """One tenant with a key in front of a House."""

    house: House
    upstream: MisbehavingUpstream
    config_text: str
    key: str = ""
    records: list[RequestRecord] = field(default_factory=list)  # settled ones, in order, as the ledger took them
    keepalive_s: float = 15.0
    patience_s: float = 30.0
    pipeline: Pipeline = field(init=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.pipeline = Pipeline(self.house)
        settle = self.house.ledger.settle

        def noted(record: RequestRecord) -> None:
            settle(record)
            self.records.append(record)

        self.house.ledger.settle = noted  # type: ignore[method-assign]

    @property
    def record(self) -> RequestRecord:
        """The only one there is."""
        (record,) = self.records
        return record

    async def start_over(self) -> None:
        """Another tenant, who shares nothing with those before."""
        self.records.clear()
        self.key = await self.tenant("acme")

    async def tenant(self, name: str, limits: Limits | None = None, **fields: Any) -> str:
        """A new tenant's key."""
        name = f"{name}-{next(self._numbers)}"
        await create_tenant(self.house.database, name, limits=limits, **fields)
        made = await create_key(self.house.database, name)
        await self.house.authenticator._watch.poll()  # now, whatever the interval
        return made.secret

    async def ask(
        self,
        body: Any,
        parse: Callable[[bytes], Inference] = parse_chat,
        *,
        key: str | None = None,
        line: Line | None = None,
        dialect: Dialect | None = None,
        **headers: str,
    ) -> Line:
        """One request, in a task of its own as a server would have it. `headers`: with underscores for dashes."""
        line = line or Line()
        await asyncio.create_task(self._serve(body, dialect or PlainDialect(parse), self.headers(key, **headers), line))
        return line

    def headers(self, key: str | None = None, **headers: str) -> Headers:
        named = {"authorization": f"Bearer {self.key if key is None else key}"} | headers
        pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in named.items()]
        return Headers({"headers": pairs, "path": "/v1/..."})

    async def _serve(self, body: Any, dialect: Dialect, header: Headers, line: Line) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        heartbeat = Heartbeat(line.send, self.keepalive_s, self.patience_s)
        told = partial(self.pipeline.answer, dialect, raw, header, line.receive, heartbeat=heartbeat)
        try:
            answer: Any = await told()
        except ApiError as error:  # what the application around the pipeline does with it
            headers = turn_away(error, "POST", "/v1/...", self.house.metrics)
            answer = Answer(error.encode(), status=error.status, headers=encode_headers(headers.items()))
        await answer({}, line.receive, heartbeat)

    async def reconfigure(self, *changes: tuple[str, str]) -> None:
        """Applies the config with some of its text replaced, as an edit of the file would."""
        for old, new in changes:
            assert old in self.config_text
            self.config_text = self.config_text.replace(old, new)
        await apply(self.house, parse(self.config_text.encode()))

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        """What SQL holds once the ledger is through."""
        await self.house.ledger.drain()
        with sqlite3.connect(home() / "tollhouse.db") as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(sql)]

    async def until(self, condition: Callable[[], bool], seconds: float = 5.0) -> None:
        """For what another thread does."""
        assert await asyncio.to_thread(self.upstream.wait_until, condition, seconds)

    def num_sent(self, behaviour: str = "ok") -> int:
        """Requests that reached the upstream."""
        return len(self.upstream.of(behaviour))


async def open_gate(stack: AsyncExitStack, upstream: MisbehavingUpstream, config_text: str = CONFIG) -> Gate:
    """State lies under TOLLHOUSE_HOME; `stack` closes everything."""
    text = config_text.replace("{upstream}", upstream.base_url)
    config: Config = parse(text.encode())
    return Gate(await open_house(config, stack), upstream, text)
