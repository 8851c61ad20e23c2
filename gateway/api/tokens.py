"""POST /tokenize and /detokenize."""

from collections.abc import Awaitable, Callable
from typing import Any

from litestar import asgi
from litestar.types import Receive, Scope, Send

from gateway.answer import Answer
from gateway.api.incoming import Headers, read_post
from gateway.house import House
from gateway.tenants.gatekeeper import Incoming
from gateway.tokens import detokenize, tokenize


@asgi("/tokenize", copy_scope=False)
async def tokenize_text(scope: Scope, receive: Receive, send: Send) -> None:
    await _answer(tokenize, scope, receive, send)


@asgi("/detokenize", copy_scope=False)
async def detokenize_tokens(scope: Scope, receive: Receive, send: Send) -> None:
    await _answer(detokenize, scope, receive, send)


async def _answer(
    serve: Callable[[House, bytes, Incoming], Awaitable[Answer]], scope: Any, receive: Receive, send: Send
) -> None:
    raw = await read_post(scope, receive)
    told = await serve(scope["litestar_app"].state.house, raw, Headers(scope))
    await told(scope, receive, send)
