"""An HTTP provider as the pipeline sees it, against an upstream that misbehaves for real."""

import asyncio
import itertools
import json
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from gateway.config import ProviderConfig
from gateway.upstream.errors import ConnectFailure, ProtocolFailure, TimeoutFailure, UpstreamFailure
from gateway.upstream.http_backend import HttpBackend
from gateway.upstream.transport import Transport
from gateway.upstream.types import Outbound, Reply
from gateway.wire.chat import parse_chat
from gateway.wire.embeddings import parse_embedding
from gateway.wire.sse import DONE
from tests.faults.misbehaving import MisbehavingUpstream, Wire
from tests.faults.misbehaviours import TEXT, completion

KEY = "sk-provider-secret"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
def upstream(own_upstream: MisbehavingUpstream) -> MisbehavingUpstream:
    return own_upstream


def provider_for(upstream: MisbehavingUpstream, **settings: Any) -> ProviderConfig:
    limits = {"connect_timeout_s": 1.0, "first_token_timeout_s": 0.4, "idle_timeout_s": 0.3, "total_timeout_s": 5.0}
    return ProviderConfig(name="mock", base_url=upstream.base_url, api_key_env="MOCK_KEY", **limits | settings)


@pytest.fixture
async def backend(
    anyio_backend: Any, upstream: MisbehavingUpstream, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[HttpBackend]:
    monkeypatch.setenv("MOCK_KEY", KEY)
    made = HttpBackend(provider_for(upstream))
    yield made
    await made.aclose()


def outbound(behaviour: str, *, stream: bool = False, headers: Any = (), **fields: Any) -> Outbound:
    body = {"model": "ours", "messages": [{"role": "user", "content": "hi"}], "stream": stream} | fields
    inference = parse_chat(json.dumps(body).encode())
    return Outbound(request_id="r1", inference=inference, upstream_model=behaviour, headers=headers)


async def events_of(reply: Reply) -> list[bytes]:
    assert reply.events is not None
    events = [payload async for payloads in reply.events for payload in payloads]
    await reply.aclose()
    return events


async def until_idle(backend: HttpBackend, seconds: float = 10.0) -> None:
    """Until the last bytes of a stream, which come after all that matters, have come too."""
    assert isinstance(backend._transport, Transport)
    until = time.monotonic() + seconds
    while not any(pool._idle for pool in backend._transport._pools.values()):
        assert time.monotonic() < until, "no connection comes to rest"
        await asyncio.sleep(0.01)


def text_of(events: list[bytes]) -> str:
    chunks = [json.loads(event) for event in events if event != DONE]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


@pytest.mark.anyio
async def test_a_plain_answer(backend: HttpBackend, upstream: MisbehavingUpstream) -> None:
    reply = await backend.send(outbound("ok"))
    assert (reply.status, reply.events) == (200, None)
    assert json.loads(reply.body or b"")["choices"][0]["message"]["content"] == "ok"
    assert dict(reply.headers) == {
        b"content-type": b"application/json",
        b"x-upstream-request-id": b"req-up",
        b"openai-processing-ms": b"5",
    }  # and not what the operator's account has left
    request = upstream.received[0]
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["host"] == f"localhost:{upstream.port}"


@pytest.mark.anyio
async def test_the_body_is_the_clients_but_for_the_model(backend: HttpBackend, upstream: MisbehavingUpstream) -> None:
    odd = b'{ "model":"ours","messages":[{"role":"user","content":"\\u00e9"}],"top_k" : 5,"x_vendor":[1.50]}'
    await backend.send(Outbound(request_id="r", inference=parse_chat(odd), upstream_model="ok"))
    assert upstream.received[0].raw == odd.replace(b'"ours"', b'"ok"')
    await events_of(await backend.send(outbound("ok", stream=True)))
    assert set(upstream.received[1].json) == {"model", "messages", "stream", "stream_options"}
    assert upstream.received[1].json["stream_options"] == {"include_usage": True}


@pytest.mark.anyio
async def test_few_of_the_clients_headers_go_on(backend: HttpBackend, upstream: MisbehavingUpstream) -> None:
    mine = (
        ("Authorization", "Bearer sk-th-client"),
        ("Cookie", "a=b"),
        ("OpenAI-Beta", "x=1"),
        ("Idempotency-Key", "1"),
        ("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("X-Forwarded-For", "::1"),
    )
    await backend.send(outbound("ok", headers=mine))
    sent = upstream.received[0].headers
    assert sent["traceparent"] == mine[4][1]
    assert sent["authorization"] == f"Bearer {KEY}"
    assert not {"cookie", "x-forwarded-for", "openai-beta", "idempotency-key"} & set(sent)
    assert "sk-th-client" not in json.dumps(sent)


@pytest.mark.anyio
async def test_a_providers_own_headers_and_query(upstream: MisbehavingUpstream) -> None:
    provider = provider_for(upstream, headers={"api-key": "k", "OpenAI-Organization": "org"})
    provider = msgspec.structs.replace(provider, api_key_env="", base_url=f"{upstream.base_url}?api-version=7")
    backend = HttpBackend(provider)
    inference = parse_embedding(b'{"model":"ours","input":"hi"}')
    reply = await backend.send(Outbound(request_id="r", inference=inference, upstream_model="ok"))
    assert json.loads(reply.body or b"")["data"][0]["embedding"] == [5.0, -0.5, 0.25]
    request = upstream.received[0]
    assert request.path == "/v1/embeddings?api-version=7"
    assert (request.headers["api-key"], request.headers["openai-organization"]) == ("k", "org")
    assert "authorization" not in request.headers
    assert request.json == {"model": "ok", "input": "hi"}
    await backend.aclose()


@pytest.mark.anyio
async def test_a_stream(backend: HttpBackend, upstream: MisbehavingUpstream) -> None:
    for _ in range(3):
        events = await events_of(await backend.send(outbound("ok", stream=True)))
        assert text_of(events) == "xx"
        assert events[-1] == DONE
        assert json.loads(events[-2])["usage"]["total_tokens"] == 18
        await until_idle(backend)
    assert upstream.num_connections == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        ("comments", "hi"),
        ("loose", "hi"),
        ("utf8-split", TEXT),
        ("gzip-stream", "z"),
        ("close-delimited-stream", "x"),
        ("late-terminator", "x"),
        ("no-done", "x"),
    ],
)
async def test_odd_streams_are_read(backend: HttpBackend, behaviour: str, text: str) -> None:
    events = await events_of(await backend.send(outbound(behaviour, stream=True)))
    assert text_of(events) == text
    assert (events[-1] == DONE) == (behaviour != "no-done")


@pytest.mark.anyio
async def test_pieces_come_as_they_are_sent(backend: HttpBackend) -> None:
    reply = await backend.send(outbound("paced", stream=True))
    assert reply.events is not None
    times = [time.perf_counter() async for payloads in reply.events if b'"content"' in payloads[0]]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert len(times) == 8
    assert 0.05 < statistics.median(gaps) < 0.2
    await reply.aclose()


@pytest.mark.anyio
async def test_the_end_is_told_at_done_and_the_connection_kept(
    backend: HttpBackend, upstream: MisbehavingUpstream
) -> None:
    started = time.perf_counter()
    await events_of(await backend.send(outbound("late-terminator", stream=True)))
    assert time.perf_counter() - started < 0.5
    await until_idle(backend)
    await backend.send(outbound("ok"))
    assert upstream.num_connections == 1


@pytest.mark.anyio
async def test_a_json_answer_to_a_stream_is_a_whole_body(backend: HttpBackend) -> None:
    reply = await backend.send(outbound("json-for-stream", stream=True))
    assert reply.events is None
    assert b"chatcmpl" in (reply.body or b"")


@pytest.mark.anyio
@pytest.mark.parametrize("behaviour", ["cut", "short", "error-event"])
async def test_a_broken_stream_is_never_a_finished_one(backend: HttpBackend, behaviour: str) -> None:
    reply = await backend.send(outbound(behaviour, stream=True))
    got: list[bytes] = []
    with pytest.raises(ProtocolFailure):  # noqa: PT012
        assert reply.events is not None
        async for payloads in reply.events:
            got += payloads
    assert b"".join(got).count(b'"content": "x"') == 3
    assert DONE not in got
    await reply.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("behaviour", ["gzip", "deflate", "raw-deflate"])
async def test_compression_that_nobody_asked_for_is_undone(backend: HttpBackend, behaviour: str) -> None:
    reply = await backend.send(outbound(behaviour))
    assert json.loads(reply.body or b"")["choices"][0]["message"]["content"] == "zipped"
    assert b"content-encoding" not in dict(reply.headers)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "behaviour",
    ["gzip-cut", "not-gzip", "brotli", "reset", "close", "garbage", "half-head", "half-body", "half-chunk", "bad-chunk",
     "big-head", "upgrade", "redirect", "events-unasked"],
)  # fmt: skip
async def test_broken_answers_are_protocol_failures(backend: HttpBackend, behaviour: str) -> None:
    with pytest.raises(ProtocolFailure) as raised:
        await backend.send(outbound(behaviour))
    assert KEY not in str(raised.value)


@pytest.mark.anyio
async def test_an_endless_event_is_cut_short(backend: HttpBackend) -> None:
    with pytest.raises(ProtocolFailure, match="bytes"):
        await events_of(await backend.send(outbound("endless-event", stream=True)))


@pytest.mark.anyio
@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 500, 503])
async def test_errors_come_as_they_are(backend: HttpBackend, status: int) -> None:
    for stream in (False, True):
        reply = await backend.send(outbound(str(status), stream=stream))
        assert reply.status == status
        assert json.loads(reply.body or b"")["error"]["code"] == f"code_{status}"


@pytest.mark.anyio
@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
async def test_an_answer_that_repeats_our_key_is_none(
    backend: HttpBackend, upstream: MisbehavingUpstream, status: str
) -> None:
    async def echo(wire: Wire) -> None:
        await wire.json(completion(f"you sent {wire.request.headers['authorization']}"), status)

    upstream.on("echo", echo)
    with pytest.raises(ProtocolFailure, match="repeats our key"):
        await backend.send(outbound("echo"))


@pytest.mark.anyio
async def test_a_429_keeps_its_headers(backend: HttpBackend) -> None:
    reply = await backend.send(outbound("429"))
    assert reply.status == 429
    assert dict(reply.headers)[b"retry-after"] == b"7"
    assert dict(reply.headers)[b"x-ratelimit-remaining-requests"] == b"0"


@pytest.mark.anyio
async def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = HttpBackend(ProviderConfig(name="gone", base_url="http://127.0.0.1:9/v1"))
    with pytest.raises(ConnectFailure):
        await backend.send(outbound("ok"))
    await backend.aclose()


async def timed_out(backend: HttpBackend, behaviour: str, stream: bool) -> tuple[str, float]:
    started = time.perf_counter()
    with pytest.raises(TimeoutFailure) as raised:  # noqa: PT012
        reply = await backend.send(outbound(behaviour, stream=stream))
        await events_of(reply)
    return raised.value.phase, time.perf_counter() - started


@pytest.mark.anyio
@pytest.mark.parametrize("behaviour", ["silence", "silent-stream", "only-comments", "slow-loris"])
async def test_the_first_token_has_its_limit(
    backend: HttpBackend, upstream: MisbehavingUpstream, behaviour: str
) -> None:
    phase, seconds = await timed_out(backend, behaviour, stream=True)
    assert phase == "first_token"
    assert 0.35 < seconds < 1.5
    assert await asyncio.to_thread(
        upstream.wait_until, lambda: upstream.of(behaviour)[0].hung_up_after_s is not None, 1.0
    )


@pytest.mark.anyio
async def test_pauses_between_tokens_have_their_own_limit(backend: HttpBackend) -> None:
    phase, seconds = await timed_out(backend, "stall", stream=True)
    assert phase == "idle"
    assert 0.3 < seconds < 1.5
    phase, _ = await timed_out(backend, "half-body-silence", stream=False)
    assert phase == "idle"


@pytest.mark.anyio
async def test_a_stream_longer_than_each_limit_but_the_last_is_fine(upstream: MisbehavingUpstream) -> None:
    backend = HttpBackend(provider_for(upstream, first_token_timeout_s=0.3, idle_timeout_s=0.3))
    assert text_of(await events_of(await backend.send(outbound("paced", stream=True)))) == "01234567"
    await backend.aclose()


@pytest.mark.anyio
async def test_the_whole_has_its_limit(upstream: MisbehavingUpstream) -> None:
    backend = HttpBackend(provider_for(upstream, total_timeout_s=0.35))
    assert (await timed_out(backend, "silence", stream=False))[0] == "total"
    assert (await timed_out(backend, "paced", stream=True))[0] == "total"
    await backend.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [False, True])
async def test_cancelling_hangs_up_within_a_second(
    backend: HttpBackend, upstream: MisbehavingUpstream, stream: bool
) -> None:
    behaviour = "paced" if stream else "slow"
    task = asyncio.create_task(whole(backend, behaviour, stream))
    assert await asyncio.to_thread(upstream.wait_until, lambda: bool(upstream.of(behaviour)))
    await asyncio.sleep(0.15)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(
        upstream.wait_until, lambda: upstream.of(behaviour)[0].hung_up_after_s is not None, 1.0
    )


async def whole(backend: HttpBackend, behaviour: str, stream: bool) -> None:
    reply = await backend.send(outbound(behaviour, stream=stream))
    try:
        await events_of(reply)
    finally:
        await reply.aclose()


@pytest.mark.anyio
async def test_closing_a_reply_hangs_up_and_may_be_repeated(
    backend: HttpBackend, upstream: MisbehavingUpstream
) -> None:
    reply = await backend.send(outbound("paced", stream=True))
    await reply.aclose()
    await reply.aclose()
    assert await asyncio.to_thread(
        upstream.wait_until, lambda: upstream.of("paced")[0].hung_up_after_s is not None, 1.0
    )


@pytest.mark.anyio
async def test_another_transport_serves_as_well(upstream: MisbehavingUpstream) -> None:
    """Behind a proxy httpx's own transport takes over: same answers, same errors."""
    backend = HttpBackend(provider_for(upstream), httpx.AsyncHTTPTransport())
    assert b"chatcmpl" in ((await backend.send(outbound("ok"))).body or b"")
    assert text_of(await events_of(await backend.send(outbound("utf8-split", stream=True)))) == TEXT
    assert (await timed_out(backend, "silent-stream", stream=True))[0] == "first_token"
    for behaviour in ("cut", "short", "half-chunk", "reset"):
        with pytest.raises(UpstreamFailure):
            await whole(backend, behaviour, stream=True)
    await backend.aclose()


@pytest.mark.anyio
async def test_a_proxy_of_the_environment_is_used(
    upstream: MisbehavingUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upstream plays the proxy: it sees the whole URL in the request line."""
    for name in ("http_proxy", "no_proxy", "NO_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{upstream.port}")
    backend = HttpBackend(ProviderConfig(name="far", base_url="http://llm.example/v1"))
    reply = await backend.send(outbound("ok"))
    assert reply.status == 200
    assert upstream.received[0].path == "http://llm.example/v1/chat/completions"
    await backend.aclose()


@pytest.mark.anyio
async def test_one_answer_of_many_requests_each(backend: HttpBackend, upstream: MisbehavingUpstream) -> None:
    async def echo(wire: Wire) -> None:
        await wire.json({"choices": [], "echo": wire.request.json["n_vendor"]})

    upstream.on("echo", echo)

    async def ask(number: int) -> bool:
        reply = await backend.send(outbound("echo", n_vendor=number))
        return bool(json.loads(reply.body or b"")["echo"] == number)

    assert all(await asyncio.gather(*map(ask, range(100))))
    assert all(await asyncio.gather(*map(ask, range(100))))
    assert upstream.num_connections <= 100
