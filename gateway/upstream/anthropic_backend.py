"""A provider of Anthropic's Messages API: chats are translated, both ways; requests of that API pass as they are.

Reference: https://platform.claude.com/docs/en/api/messages
"""

from collections.abc import AsyncIterator

import httpx
import msgspec

from gateway.config import ProviderConfig
from gateway.errors import InvalidRequestError, UpstreamError
from gateway.upstream.errors import NoAnswerFailure, ProtocolFailure
from gateway.upstream.headers import header_lines
from gateway.upstream.http_backend import HttpBackend
from gateway.upstream.messages_format import MESSAGES
from gateway.upstream.types import Outbound, Reply
from gateway.wire.inference import Inference, Native
from gateway.wire.members import decode_members
from gateway.wire.messages.chat_request import messages_request
from gateway.wire.messages.completion import CompletionChunks, chat_completion
from gateway.wire.messages.errors import openai_error, said
from gateway.wire.messages.passing import Body, read_body, without_unsigned
from gateway.wire.messages.request import API
from gateway.wire.splice import splice_members
from gateway.wire.sse import DONE

VERSION = ("anthropic-version", "2023-06-01")
DEFAULT_MAX_TOKENS = 1024  # the API wants some
PATHS = {"messages": "messages", "count": "messages/count_tokens"}
_COUNTED = frozenset(("model", "messages", "system", "tools", "tool_choice", "output_config", "thinking"))


class _Count(msgspec.Struct):
    input_tokens: int


class AnthropicBackend(HttpBackend):
    """Implements `Backend` and `CountsTokens` of `gateway.upstream.types`."""

    paths = PATHS
    format = MESSAGES

    def __init__(self, provider: ProviderConfig, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """The base URL may end in /v1 or, as Anthropic's clients write it, just before."""
        super().__init__(msgspec.structs.replace(provider, base_url=_with_version(provider.base_url)), transport)

    @staticmethod
    def _credentials(key: str) -> dict[str, str]:
        return {"x-api-key": key}

    def request(self, outbound: Outbound) -> tuple[str, bytes, bytes]:
        native = _native(outbound.inference)
        if native is None:
            longest = outbound.longest_answer or DEFAULT_MAX_TOKENS
            body = messages_request(outbound.inference, outbound.upstream_model, longest)
            return "messages", body, header_lines((VERSION,))
        changes = {"model": msgspec.json.encode(outbound.upstream_model)}
        if native.unsigned:
            changes["messages"] = without_unsigned(native.fields["messages"])
        versions = (
            native.headers if any(name == VERSION[0] for name, _ in native.headers) else (VERSION, *native.headers)
        )
        return "messages", splice_members(native.raw, native.fields, changes), header_lines(versions)

    async def send(self, outbound: Outbound) -> Reply:
        reply = await super().send(outbound)
        if _native(outbound.inference) is not None:
            return reply if reply.events is None else reply.with_events(_told_to_end(reply.events))
        return _in_chat(reply, outbound.inference)

    async def count_tokens(self, outbound: Outbound) -> int:
        _, body, lines = self.request(outbound)
        if _native(outbound.inference) is None:
            body = msgspec.json.encode({name: raw for name, raw in decode_members(body).items() if name in _COUNTED})
        reply = await self._call(outbound, "count", body, lines)
        told = reply.body or b""
        if reply.status < 300:
            try:
                return msgspec.json.decode(told, type=_Count).input_tokens
            except msgspec.DecodeError as error:
                raise ProtocolFailure(f"no count of tokens: {error}") from error
        if reply.status in (400, 404, 413):
            raise InvalidRequestError(said(told))
        raise UpstreamError(f"The upstream could not count: HTTP {reply.status}", code=f"http_{reply.status}")


def _native(inference: Inference) -> Native | None:
    """The client's own request, if it is one of this API."""
    return inference.native if inference.api == API else None


def _in_chat(reply: Reply, inference: Inference) -> Reply:
    """Raises ProtocolFailure for what is neither a message nor an error."""
    headers, body = reply.headers, reply.body or b""
    if reply.events is not None:
        chunks = _chunks(reply.events, CompletionChunks(null_usage=inference.include_usage))
        return Reply(reply.status, headers=headers, events=chunks, close=reply.aclose)
    read = read_body(body)
    if reply.status >= 300 or (read is not None and read.error is not None):
        return Reply(reply.status, headers=headers, body=openai_error(body))
    try:
        return Reply(reply.status, headers=headers, body=chat_completion(body))
    except ValueError as error:
        failure = NoAnswerFailure if read == Body() else ProtocolFailure  # half a message was written by a model
        raise failure(f"the answer is no message: {error}", reply.status) from error


async def _chunks(events: AsyncIterator[list[bytes]], chunks: CompletionChunks) -> AsyncIterator[list[bytes]]:
    async for payloads in events:
        try:
            told = [chunk for payload in payloads for chunk in chunks.feed(payload)]
        except ValueError as error:
            raise ProtocolFailure(f"an event that is none: {error}") from error
        if told:
            yield told


async def _told_to_end(events: AsyncIterator[list[bytes]]) -> AsyncIterator[list[bytes]]:
    """As a stream's reader expects it: [DONE] behind the last event."""
    async for payloads in events:
        yield payloads if MESSAGES.find_end(payloads) is None else [*payloads, DONE]


def _with_version(base_url: str) -> str:
    url = httpx.URL(base_url)
    path = url.path.rstrip("/")
    return str(url if path.endswith("/v1") else url.copy_with(path=f"{path}/v1"))
