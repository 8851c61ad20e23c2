"""POST /v1/chat/completions, /v1/completions and /v1/embeddings: the body in, the pipeline's answer out.

Plain ASGI handlers of Litestar's: its request object, signature model and response cost as much as all of ours.
"""

from typing import Any

from litestar import asgi
from litestar.types import Receive, Scope, Send

from gateway.api.incoming import Headers, read_post
from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completion
from gateway.wire.dialect import Dialect, PlainDialect
from gateway.wire.embeddings import parse_embedding

CHAT = PlainDialect(parse_chat)
COMPLETIONS = PlainDialect(parse_completion)
EMBEDDINGS = PlainDialect(parse_embedding)


@asgi("/v1/chat/completions", copy_scope=False)
async def chat_completions(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(CHAT, scope, receive, send)


@asgi("/v1/completions", copy_scope=False)
async def completions(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(COMPLETIONS, scope, receive, send)


@asgi("/v1/embeddings", copy_scope=False)
async def embeddings(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(EMBEDDINGS, scope, receive, send)


async def answer(dialect: Dialect, scope: Any, receive: Receive, send: Send) -> None:
    """One request of any dialect, from its bytes to the last byte of its answer."""
    raw = await read_post(scope, receive)
    state = scope["litestar_app"].state
    heartbeat = state.heartbeat(send)
    told = await state.pipeline.answer(dialect, raw, Headers(scope), receive, heartbeat=heartbeat)
    await told(scope, receive, heartbeat)
