"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API in front of every model."""

from typing import Any

from litestar import asgi
from litestar.types import Receive, Scope, Send

from gateway.api.incoming import Headers, read_post
from gateway.api.inference import answer
from gateway.counting import count_tokens
from gateway.wire.messages.dialect import MessagesDialect

_OF_THE_REQUEST = ("anthropic-version", "anthropic-beta")  # what it means depends on them


@asgi("/v1/messages", copy_scope=False)
async def messages(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(_dialect(scope), scope, receive, send)


@asgi("/v1/messages/count_tokens", copy_scope=False)
async def count_message_tokens(scope: Scope, receive: Receive, send: Send) -> None:
    raw = await read_post(scope, receive)
    dialect = _dialect(scope, counting=True)
    told = await count_tokens(scope["litestar_app"].state.house, dialect, raw, Headers(scope))
    await told(scope, receive, send)


def _dialect(scope: Any, *, counting: bool = False) -> MessagesDialect:
    header = Headers(scope)
    headers = tuple((name, value) for name in _OF_THE_REQUEST if (value := header(name)) is not None)
    return MessagesDialect(headers, counting=counting)
