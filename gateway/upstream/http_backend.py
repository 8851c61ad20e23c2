"""A provider behind HTTP: any server that speaks OpenAI's API. It gets the client's own bytes, under its model name."""

import httpx

from gateway.config import ProviderConfig
from gateway.upstream.answer import Answer, EventStream, translate
from gateway.upstream.errors import ProtocolFailure
from gateway.upstream.timer import PhaseTimer
from gateway.upstream.transport import transport_for
from gateway.upstream.types import Endpoint, Outbound, Reply
from gateway.wire.splice import splice

MAX_BODY_BYTES = 256 * 1024 * 1024  # 2,048 embeddings of 3,072 dimensions as decimals are half of that
MAX_ERROR_BYTES = 1024 * 1024
PATHS: dict[Endpoint, str] = {
    "chat.completions": "chat/completions",
    "completions": "completions",
    "embeddings": "embeddings",
}
FORWARDED = {"openai-beta", "idempotency-key", "traceparent", "tracestate"}  # of the client's headers
KEPT = {b"content-type", b"retry-after", b"retry-after-ms", b"x-should-retry"}  # of the upstream's
KEPT_PREFIXES = (b"x-ratelimit-", b"openai-")


class HttpBackend:
    """Implements `gateway.upstream.types.Backend`."""

    def __init__(self, provider: ProviderConfig, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.name = provider.name
        self._provider = provider
        self._transport = transport or transport_for(provider.base_url, provider.max_connections)
        self._urls = {endpoint: _join(provider.base_url, path) for endpoint, path in PATHS.items()}
        self._headers = _base_headers(provider)
        self._timeout = {"connect": provider.connect_timeout_s, "pool": provider.connect_timeout_s}

    async def send(self, outbound: Outbound) -> Reply:
        provider, stream = self._provider, outbound.inference.stream
        timer = PhaseTimer(provider.total_timeout_s)
        answer: Answer | None = None
        try:
            if stream:
                timer.limit("first_token", provider.first_token_timeout_s, from_start=True)
            with timer:
                response = await self._transport.handle_async_request(self._request(outbound))
            status, headers = response.status_code, _kept(response.headers)
            answer = Answer(response, timer)
            is_events = answer.content_type == "text/event-stream"
            if status < 300 and stream and is_events:
                events = EventStream(answer, provider.first_token_timeout_s, provider.idle_timeout_s)
                return Reply(status, headers=headers, events=events, close=answer.aclose)
            if 300 <= status < 400:
                raise ProtocolFailure(f"a redirect (HTTP {status}), which is not followed: correct base_url")
            if status < 300 and is_events:
                raise ProtocolFailure("an event stream that was not asked for")
            limit = MAX_BODY_BYTES if status < 300 else MAX_ERROR_BYTES
            return Reply(status, headers=headers, body=await answer.whole(limit, provider.idle_timeout_s))
        except BaseException as error:
            timer.close()
            if answer is not None:
                await answer.aclose()
            if isinstance(error, httpx.HTTPError):
                raise translate(error, provider.connect_timeout_s) from error
            raise

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _request(self, outbound: Outbound) -> httpx.Request:
        inference = outbound.inference
        headers = httpx.Headers(self._headers)
        headers["x-request-id"] = outbound.request_id
        for name, value in outbound.headers:
            if name.lower() in FORWARDED:
                headers[name] = value
        body = splice(inference, model=outbound.upstream_model, include_usage=inference.stream or None)
        headers["content-length"] = str(len(body))
        return httpx.Request(
            "POST",
            self._urls[inference.endpoint],
            headers=headers,
            stream=httpx.ByteStream(body),
            extensions={"timeout": self._timeout},
        )


def _join(base_url: str, path: str) -> httpx.URL:
    """A query of the base URL (`?api-version=...`) stays behind the path."""
    url = httpx.URL(base_url)
    return url.copy_with(path=f"{url.path.rstrip('/')}/{path}")


def _base_headers(provider: ProviderConfig) -> httpx.Headers:
    url = httpx.URL(provider.base_url)
    headers = {
        "host": url.netloc.decode("ascii"),
        "user-agent": "tollhouse",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",  # answers are short, and a compressed stream comes in bursts
        "content-type": "application/json",
    }
    if provider.api_key:
        headers["authorization"] = f"Bearer {provider.api_key}"
    return httpx.Headers(headers | {name.lower(): value for name, value in provider.headers.items()})


def _kept(headers: httpx.Headers) -> tuple[tuple[str, str], ...]:
    """What a client may want to know. The upstream's request id gets a name of its own: ours goes by x-request-id."""
    kept: list[tuple[str, str]] = []
    for name, value in headers.raw:
        name = name.lower()
        if name in KEPT or name.startswith(KEPT_PREFIXES):
            kept.append((name.decode("latin-1"), value.decode("latin-1")))
        elif name == b"x-request-id":
            kept.append(("x-upstream-request-id", value.decode("latin-1")))
    return tuple(kept)
