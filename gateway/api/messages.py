"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API in front of every model."""

from collections.abc import Awaitable
from typing import Any

from gateway.answer import Answer, StreamAnswer
from gateway.api.endpoint import endpoint
from gateway.api.incoming import Headers
from gateway.api.inference import answer
from gateway.counting import count_tokens
from gateway.wire.messages.dialect import MessagesDialect

_OF_THE_REQUEST = ("anthropic-version", "anthropic-beta")  # what it means depends on them


def _create(state: Any, raw: bytes, header: Headers, *ends: Any) -> Awaitable[Answer | StreamAnswer]:
    return answer(_dialect(header), state, raw, header, *ends)


def _count(state: Any, raw: bytes, header: Headers, *_ends: Any) -> Awaitable[Answer]:
    return count_tokens(state.house, _dialect(header, counting=True), raw, header)


def _dialect(header: Headers, *, counting: bool = False) -> MessagesDialect:
    headers = tuple((name, value) for name in _OF_THE_REQUEST if (value := header(name)) is not None)
    return MessagesDialect(headers, counting=counting)


messages = endpoint("/v1/messages", _create)
count_message_tokens = endpoint("/v1/messages/count_tokens", _count)
