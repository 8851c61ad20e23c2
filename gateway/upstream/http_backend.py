"""A provider behind HTTP: any server that speaks OpenAI's API. It gets the client's own bytes, under its model name."""

import asyncio
from collections.abc import Awaitable, Mapping

import httpx

from gateway.config import ProviderConfig
from gateway.upstream import passing
from gateway.upstream.answer import HttpAnswer, kept_headers, translate
from gateway.upstream.errors import NoAnswerFailure, ProtocolFailure, RedirectFailure, TimeoutFailure
from gateway.upstream.event_stream import EventStream
from gateway.upstream.exchange import Exchange
from gateway.upstream.foreign import ForeignExchange, exchange_through
from gateway.upstream.formats import OPENAI, Format
from gateway.upstream.headers import base_headers, header_lines, may_go_on, request_head, split_line, url_below
from gateway.upstream.native import refuse_lost
from gateway.upstream.pool import Pool
from gateway.upstream.transport import Transport, exchange_over, transport_for
from gateway.upstream.types import Outbound, Reply, Timeouts
from gateway.upstream.waiting import Limit
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
        self._urls = {endpoint: url_below(provider.base_url, path) for endpoint, path in self.paths.items()}
        self._models_url = url_below(provider.base_url, "models")
        self._pool: Pool | None = None  # once it is needed
        self._limit_field = provider.limit_field
        self._connect_s = provider.connect_timeout_s
        self._secret = provider.api_key.encode() if len(provider.api_key) >= MIN_SECRET else b""
        self._headers = base_headers(provider, self._credentials(provider.api_key) if provider.api_key else {})
        self._heads = {endpoint: request_head(url, self._headers_of(endpoint)) for endpoint, url in self._urls.items()}

    def request(self, outbound: Outbound) -> tuple[str, bytes, bytes]:
        """Which of `paths`, the body, and header lines beside those that every request has.

        Raises InvalidRequestError.
        """
        inference = outbound.inference
        if inference.api:  # a chat of our own writing
            refuse_lost(inference)
            inference = renamed(inference, "max_completion_tokens", self._limit_field)
        body = splice(inference, model=outbound.upstream_model, include_usage=inference.stream or None)
        form = inference.form
        return inference.endpoint, body, b"" if form is None else header_lines((("content-type", form.content_type),))

    async def send(self, outbound: Outbound) -> Reply:
        return await self._call(outbound, *self.request(outbound))

    async def _call(self, outbound: Outbound, path: str, body: bytes, lines: bytes) -> Reply:
        inference, timeouts = outbound.inference, outbound.timeouts or self._timeouts
        now = asyncio.get_running_loop().time()
        total = limit = Limit(now + timeouts.total_s, "total", timeouts.total_s)
        if inference.stream:
            limit = min(total, Limit(now + timeouts.first_token_s, "first_token", timeouts.first_token_s))
        try:
            exchange = await self._sent(outbound, path, body, lines, limit.until)
        except TimeoutError as error:
            raise TimeoutFailure(limit.phase, limit.seconds) from error
        except httpx.HTTPError as error:
            raise translate(error, self._connect_s) from error
        try:
            return await self._reply(HttpAnswer(exchange, total, timeouts.idle_s), inference, limit)
        except BaseException:
            await exchange.aclose()
            raise

    def _sent(
        self, outbound: Outbound, path: str, body: bytes, lines: bytes, until: float
    ) -> Awaitable[Exchange | ForeignExchange]:
        """Past httpx's objects through our own transport, by the book through any other."""
        connect_s, dispatch = self._connect_s, outbound.dispatch
        dispatch.has_left = False
        url, head = self._address(path, outbound.upstream_model)
        if outbound.headers:
            lines += header_lines(pair for pair in outbound.headers if may_go_on(*pair))
        request_id = outbound.request_id.encode()
        if isinstance(self._transport, Transport):
            head = b"%b%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n" % (head, lines, request_id, len(body))
            pool = self._pool = self._pool or self._transport.pool(url)
            return exchange_over(pool, b"POST", (head, body), connect_s, connect_s, until, dispatch)
        headers = [*self._headers_of(path), (b"x-request-id", request_id), *map(split_line, lines.splitlines())]
        limits = {"timeout": {"connect": connect_s, "pool": connect_s}}
        dispatch.has_left = True  # as far as we can tell
        request = httpx.Request("POST", url, headers=headers, content=body, extensions=limits)
        return exchange_through(self._transport, request, until)

    async def _reply(self, answer: HttpAnswer, inference: Inference, first_token: Limit) -> Reply:
        status = answer.status
        if status >= 300:
            body = await self._refusal(answer)
        elif answer.content_type != JSON and (reply := self._reply_of_another_type(answer, inference, first_token)):
            return reply
        else:
            body = await answer.whole(MAX_BODY_BYTES)
            if not body.lstrip().startswith(ANSWERS):
                raise NoAnswerFailure(f"HTTP {status} with {len(body)} bytes that are no JSON", status)
        if self._secret and self._secret in body:
            raise ProtocolFailure(f"an HTTP {status} that repeats our key, which is not for the client to see")
        format = passing.JSON if inference.endpoint in passing.PATHS else self.format
        return Reply(status, headers=kept_headers(status, answer.headers), body=body, format=format)

    async def _refusal(self, answer: HttpAnswer) -> bytes:
        status = answer.status
        if status < 400:
            raise RedirectFailure(f"a redirect (HTTP {status}), which is not followed: correct base_url", status)
        return await answer.whole(MAX_ERROR_BYTES)

    def _reply_of_another_type(self, answer: HttpAnswer, inference: Inference, first_token: Limit) -> Reply | None:
        """A success that does not call itself JSON; None for what may be that all the same."""
        status, kind, headers = answer.status, answer.content_type, kept_headers(answer.status, answer.headers)
        if status in EMPTY or kind in PAGES:
            what = kind.decode("latin-1") or "nothing"
            raise NoAnswerFailure(f"HTTP {status} with {what} in place of an answer", status)
        if inference.endpoint in passing.BYTES:
            pieces = passing.pieces(answer)
            return Reply(status, headers=headers, events=pieces, close=answer.aclose, format=passing.RAW)
        if kind != EVENTS:
            return None
        if not inference.stream:
            raise ProtocolFailure("an event stream that was not asked for")
        events = EventStream(answer, first_token, self.format, self._secret)
        close = answer.aclose
        return Reply(status, headers=headers, events=events, close=close, format=self.format, begins_with_token=True)

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
