"""A client that leaves stops the work within a second, whatever it waits for; slot, reservation and books are right.

Case B16 of the complaints about gateways, in every phase of a request.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gateway.tenants.types import Limits
from gateway.wire.embeddings import parse_embedding
from tests.gateway.conftest import OpenGate
from tests.support.in_process import CONFIG, Gate, Line, chat

pytestmark = pytest.mark.anyio
TOKENS = 100_000
PROVIDERS = """
[[provider]]
name = "narrow"
base_url = "{upstream}"
max_connections = 1
connect_timeout_s = 30.0
[[provider]]
name = "mute"
base_url = "https://127.0.0.1:{mute}/v1"
connect_timeout_s = 30.0
[[provider]]
name = "patient"
base_url = "{upstream}"
max_retries = 3
[[model]]
name = "narrow/*"
provider = "narrow"
input_usd_per_mtok = 1.0
[[model]]
name = "mute"
provider = "mute"
input_usd_per_mtok = 1.0
[[model]]
name = "patient/*"
provider = "patient"
input_usd_per_mtok = 1.0
"""


@pytest.fixture
async def mute(anyio_backend: Any) -> AsyncIterator[int]:
    """The port of a server that takes connections and never says a word: no TLS handshake with it ever ends."""
    connected: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: connected.append(writer), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    for writer in connected:
        writer.close()


class Leaver:
    """One tenant with room for one request, whose client leaves when told."""

    def __init__(self, gate: Gate, key: str) -> None:
        self.gate = gate
        self.key = key

    async def leaves(self, body: dict[str, Any], when: Callable[[], Awaitable[None]], *parse: Any) -> None:
        """Asks, and leaves when `when` returns. All must be over within a second."""
        line = Line()
        asking = asyncio.create_task(self.gate.ask(body, *parse, key=self.key, line=line))
        await when()
        await asyncio.sleep(0.1)  # the client is watched for by now
        assert not asking.done()
        left = time.monotonic()
        line.leave()
        await asking
        assert time.monotonic() - left < 1.0

    async def is_whole(self) -> None:
        """The slot is free, and of the minute's tokens only those used are gone."""
        record = self.gate.records[-1]
        assert (record.status, record.http_status, record.error_code) == ("cancelled", 499, "client_closed_request")
        line = await self.gate.ask(chat(), key=self.key)
        assert line.status == 200
        used = sum(attempt.usage.total_tokens for each in self.gate.records for attempt in each.attempts)
        left = int(line["x-ratelimit-remaining-tokens"])
        reserved = 3000  # at most, by the request that tells us
        assert TOKENS - used - reserved < left <= TOKENS

    async def hung_up(self, behaviour: str) -> None:
        (request,) = self.gate.upstream.of(behaviour)
        await self.gate.until(lambda: request.hung_up_after_s is not None, 1.0)


@pytest.fixture
async def leaver(gate_with: OpenGate, mute: int) -> Leaver:
    gate = await gate_with(CONFIG + PROVIDERS.replace("{mute}", str(mute)))
    limits = Limits(concurrent_requests=1, tokens_per_minute=TOKENS)
    return Leaver(gate, await gate.tenant("leaver", limits))


async def at_once() -> None:
    return


@pytest.mark.parametrize("stream", [False, True])
async def test_while_it_waits_for_a_connection(leaver: Leaver, stream: bool) -> None:
    gate, other = leaver.gate, Line()
    occupying = asyncio.create_task(gate.ask(chat("narrow/silence"), line=other))
    await gate.until(lambda: gate.num_sent("silence") == 1)
    await leaver.leaves(chat("narrow/ok", stream=stream), at_once)
    await leaver.is_whole()
    (attempt,) = gate.records[0].attempts
    assert (attempt.status, attempt.cost_nanousd, attempt.usage.total_tokens) == ("cancelled", 0, 0)  # it never left
    other.leave()
    await occupying
    assert (await gate.ask(chat("narrow/ok"))).status == 200  # its place in the queue is not lost


async def test_while_it_connects(leaver: Leaver) -> None:
    await leaver.leaves(chat("mute"), at_once)
    (attempt,) = leaver.gate.record.attempts
    assert (attempt.status, attempt.error_code, attempt.cost_nanousd) == ("cancelled", "cancelled_unsent", 0)
    await leaver.is_whole()


@pytest.mark.parametrize("stream", [False, True])
async def test_before_the_first_byte(leaver: Leaver, stream: bool) -> None:
    gate = leaver.gate
    await leaver.leaves(chat("probe/silence", stream=stream), lambda: gate.until(lambda: gate.num_sent("silence") == 1))
    await leaver.hung_up("silence")
    (attempt,) = gate.record.attempts
    assert (attempt.status, attempt.usage.estimated) == ("cancelled", True)  # it may well have run
    assert attempt.cost_nanousd > 0
    await leaver.is_whole()


async def test_in_mid_stream(leaver: Leaver) -> None:
    gate = leaver.gate
    await leaver.leaves(chat("probe/stall", stream=True), lambda: gate.until(lambda: gate.num_sent("stall") == 1))
    await leaver.hung_up("stall")
    assert gate.record.usage.completion_tokens >= 3
    await leaver.is_whole()


async def test_while_it_waits_for_the_next_try(leaver: Leaver) -> None:
    gate = leaver.gate
    await leaver.leaves(chat("patient/429-soon"), lambda: gate.until(lambda: gate.num_sent("429-soon") == 1))
    assert [attempt.status for attempt in gate.record.attempts] == ["error"]
    await leaver.is_whole()
    assert gate.num_sent("429-soon") == 1


async def test_behind_an_early_opened_stream(leaver: Leaver) -> None:
    gate = leaver.gate
    gate.keepalive_s = 0.05
    await leaver.leaves(chat("probe/silence", stream=True), lambda: gate.until(lambda: gate.num_sent("silence") == 1))
    await leaver.hung_up("silence")
    await leaver.is_whole()


async def test_while_the_bundled_embedder_works(gate_with: OpenGate, learned_config: str) -> None:
    model = '[[model]]\nname = "minilm"\nengine = "embedder"\nkind = "embedding"\ninput_usd_per_mtok = 1.0\n'
    gate = await gate_with(learned_config.replace("[[provider]]", f"{model}[[provider]]", 1))
    leaver = Leaver(gate, await gate.tenant("leaver", Limits(concurrent_requests=1, tokens_per_minute=10**9)))
    texts = [f"{number}: " + "the sea is wide and the harbour is far " * 20 for number in range(500)]
    await leaver.leaves({"model": "minilm", "input": texts}, at_once, parse_embedding)
    assert (gate.record.status, gate.record.http_status) == ("cancelled", 499)
    assert (await gate.ask(chat(), key=leaver.key)).status == 200
