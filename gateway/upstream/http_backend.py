"""A provider behind HTTP: any server that speaks OpenAI's API. It gets the client's own bytes, under its model name."""

import asyncio
from collections.abc import Mapping

import httpx

from gateway.config import ProviderConfig
from gateway.upstream import passing
from gateway.upstream.answer import EventStream, HttpAnswer, translate
from gateway.upstream.errors import NoAnswerFailure, ProtocolFailure, RedirectFailure, TimeoutFailure
from gateway.upstream.formats import OPENAI, Format
from gateway.upstream.native import refuse_lost
from gateway.upstream.timer import PhaseTimer
from gateway.upstream.transport import Body, Transport, transport_for
from gateway.upstream.types import Outbound, Reply, Timeouts
from gateway.wire.inference import Inference
from gateway.wire.splice import renamed, splice

MAX_BODY_BYTES = 256 * 1024 * 1024  # 2,048 embeddings of 3,072 dimensions as decimals are half of that
MAX_ERROR_BYTES = 1024 * 1024
PATHS: Mapping[str, str] = {
    "chat.completions": "chat/completions",
    "completions": "completions",
    "embeddings": "embeddings",
    **passing.PATHS,
}
# Of the client's headers only those that can't change the answer: all tenants share the operator's account and the
# cache, so one's `idempotency-key: 1` would be another's call, and one's `openai-beta` another's answer.
FORWARDED = {"traceparent", "tracestate"}
EVENTS = b"text/event-stream"
JSON = b"application/json"
PAGES = {b"text/html", b"application/xhtml+xml"}  # of a login, a proxy, a site: no model writes its answers so
EMPTY = {204, 205}
ANSWERS = (b"{", b"data:", b"event:", b":")  # how an object, or events under a wrong type, begin: a model may have run
HEALTH_CHECK_S = 5.0
MIN_SECRET = 16  # characters: servers of one's own take "EMPTY" for a key, which any answer may hold
UNWELL = {401, 402, 403, 429}


class HttpBackend:
    """Implements `gateway.upstream.types.Backend`.

    A provider of another API has other `paths`, another `format` of answers, another `request`, other `_credentials`.
    """

    paths: Mapping[str, str] = PATHS
    format: Format = OPENAI

    def __init__(self, provider: ProviderConfig, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.name = provider.name
        self._provider = provider
        self._timeouts = Timeouts(
            first_token_s=provider.first_token_timeout_s,
            idle_s=provider.idle_timeout_s,
            total_s=provider.total_timeout_s,
        )
        self._transport = transport or transport_for(provider.base_url, provider.max_connections)
        self._urls = {endpoint: _join(provider.base_url, path) for endpoint, path in self.paths.items()}
        self._models_url = _join(provider.base_url, "models")
        self._secret = provider.api_key.encode() if len(provider.api_key) >= MIN_SECRET else b""
        self._headers = _base_headers(provider, self._credentials(provider.api_key) if provider.api_key else {})
        self._heads = {endpoint: request_head(url, self._headers_of(endpoint)) for endpoint, url in self._urls.items()}

    def request(self, outbound: Outbound) -> tuple[str, bytes, list[tuple[bytes, bytes]]]:
        """Which of `paths`, the body, and headers beside those that every request has. Raises InvalidRequestError."""
        inference = outbound.inference
        if inference.api:  # a chat of our own writing
            refuse_lost(inference)
            inference = renamed(inference, "max_completion_tokens", self._provider.limit_field)
        body = splice(inference, model=outbound.upstream_model, include_usage=inference.stream or None)
        form = inference.form
        extra = [] if form is None else [(b"content-type", form.content_type.encode("latin-1"))]
        return inference.endpoint, body, extra

    async def send(self, outbound: Outbound) -> Reply:
        return await self._call(outbound, *self.request(outbound))

    async def _call(self, outbound: Outbound, path: str, body: bytes, extra: list[tuple[bytes, bytes]]) -> Reply:
        timeouts = outbound.timeouts or self._timeouts
        timer = PhaseTimer(timeouts.total_s)
        answer: HttpAnswer | None = None
        try:
            if outbound.inference.stream:
                timer.limit("first_token", timeouts.first_token_s, from_start=True)
            with timer:
                answer = await self._dispatch(outbound, path, body, extra, timer)
            answer.start()
            return await self._reply(answer, outbound.inference, timeouts)
        except BaseException as error:
            timer.close()
            if answer is not None:
                await answer.aclose()
            if isinstance(error, httpx.HTTPError):
                raise translate(error, self._provider.connect_timeout_s) from error
            raise

    async def _reply(self, answer: HttpAnswer, inference: Inference, timeouts: Timeouts) -> Reply:
        status, headers, stream = answer.status, tuple(answer.kept), inference.stream
        is_events = answer.content_type == EVENTS
        if status in EMPTY or (status < 300 and answer.content_type in PAGES):
            kind = answer.content_type.decode("latin-1") or "nothing"
            raise NoAnswerFailure(f"HTTP {status} with {kind} in place of an answer", status)
        if status < 300 and inference.endpoint in passing.BYTES and answer.content_type != JSON:
            pieces = passing.pieces(answer, timeouts.idle_s)
            return Reply(status, headers=headers, events=pieces, close=answer.aclose, format=passing.RAW)
        if status < 300 and stream and is_events:
            events = EventStream(answer, timeouts.first_token_s, timeouts.idle_s, self.format, self._secret)
            return Reply(status, headers=headers, events=events, close=answer.aclose, format=self.format)
        if 300 <= status < 400:
            raise RedirectFailure(f"a redirect (HTTP {status}), which is not followed: correct base_url", status)
        if status < 300 and is_events:
            raise ProtocolFailure("an event stream that was not asked for")
        limit = MAX_BODY_BYTES if status < 300 else MAX_ERROR_BYTES
        body = await answer.whole(limit, timeouts.idle_s)
        if status < 300 and not body.lstrip().startswith(ANSWERS):
            raise NoAnswerFailure(f"HTTP {status} with {len(body)} bytes that are no JSON", status)
        if status >= 400 and self._secret and self._secret in body:
            raise ProtocolFailure(f"an HTTP {status} that repeats our key, which is not for the client to see")
        format = passing.JSON if inference.endpoint in passing.PATHS else self.format
        return Reply(status, headers=headers, body=body, format=format)

    async def check(self) -> None:
        """Lists the provider's models, which costs nothing: whatever it says of them, somebody is there and knows us.

        Raises UpstreamFailure.
        """
        connect_s = self._provider.connect_timeout_s
        timeouts = {"timeout": {"connect": connect_s, "pool": connect_s}}
        request = httpx.Request("GET", self._models_url, headers=self._headers, extensions=timeouts)
        try:
            async with asyncio.timeout(HEALTH_CHECK_S):
                response = await self._transport.handle_async_request(request)
                await response.aclose()
        except TimeoutError:
            raise TimeoutFailure("total", HEALTH_CHECK_S) from None
        except httpx.HTTPError as error:
            raise translate(error, connect_s) from error
        if response.status_code >= 500 or response.status_code in UNWELL:
            raise ProtocolFailure(f"HTTP {response.status_code} to a health check")

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _address(self, path: str, model: str) -> tuple[httpx.URL, bytes]:
        """Where a request goes, and the beginning of its head."""
        return self._urls[path], self._heads[path]

    def _headers_of(self, endpoint: str) -> list[tuple[bytes, bytes]]:
        """A form's type is each request's own, and audio is nothing that JSON or events would be acceptable for."""
        if endpoint not in passing.BYTES:
            return self._headers
        left_out = (b"accept", b"content-type") if endpoint in passing.FORMS else (b"accept",)
        return [*(pair for pair in self._headers if pair[0] not in left_out), (b"accept", b"*/*")]

    @staticmethod
    def _credentials(key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    async def _dispatch(
        self, outbound: Outbound, path: str, body: bytes, extra: list[tuple[bytes, bytes]], timer: PhaseTimer
    ) -> HttpAnswer:
        """Sends the request: past httpx's objects through our own transport, by the book through any other."""
        connect_s, dispatch = self._provider.connect_timeout_s, outbound.dispatch
        dispatch.has_left = False
        url, head = self._address(path, outbound.upstream_model)
        extra = extra + _extra_headers(outbound, len(body))
        if isinstance(self._transport, Transport):
            lines = b"".join([b"%b: %b\r\n" % header for header in extra])
            parts = (b"%b%b\r\n" % (head, lines), body)
            exchange = await self._transport.exchange(url, b"POST", parts, connect_s, connect_s, dispatch)
            return HttpAnswer(exchange.status, exchange.headers, Body(exchange), timer)
        request = httpx.Request(
            "POST",
            url,
            headers=[*self._headers_of(path), *extra],
            stream=httpx.ByteStream(body),
            extensions={"timeout": {"connect": connect_s, "pool": connect_s}},
        )
        dispatch.has_left = True  # as far as we can tell
        response = await self._transport.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        return HttpAnswer(response.status_code, response.headers.raw, response.stream, timer)


def request_head(url: httpx.URL, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The lines that all requests to a URL have in common."""
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return b"POST %b HTTP/1.1\r\n%b" % (url.raw_path, lines)


def _join(base_url: str, path: str) -> httpx.URL:
    """A query of the base URL (`?api-version=...`) stays behind the path."""
    url = httpx.URL(base_url)
    return url.copy_with(path=f"{url.path.rstrip('/')}/{path}")


def _base_headers(provider: ProviderConfig, credentials: dict[str, str]) -> list[tuple[bytes, bytes]]:
    """Raises ValueError for a header that can't be sent."""
    headers = {
        "host": httpx.URL(provider.base_url).netloc.decode("ascii"),
        "user-agent": "tollhouse",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",  # answers are short, and a compressed stream comes in bursts
        "content-type": "application/json",
    } | credentials
    headers |= {name.lower(): value for name, value in provider.headers.items()}
    for name, value in headers.items():
        if not _is_one_line(name) or not _is_one_line(value):
            raise ValueError(
                f"provider {provider.name}: the header {name!r} has a line break or other control character"
            )
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _extra_headers(outbound: Outbound, content_length: int) -> list[tuple[bytes, bytes]]:
    extra = [(b"x-request-id", outbound.request_id.encode()), (b"content-length", b"%d" % content_length)]
    for name, value in outbound.headers:
        if name.lower() in FORWARDED and _is_one_line(value):
            extra.append((name.lower().encode(), value.encode()))
    return extra


def _is_one_line(text: str) -> bool:
    return all(character >= " " for character in text)
