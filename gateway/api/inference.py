"""POST /v1/chat/completions, /v1/completions and /v1/embeddings: the body in, the pipeline's answer out.

Plain ASGI handlers of Litestar's: its request object, signature model and response cost as much as all of ours.
"""

from typing import Any

from litestar import asgi
from litestar.types import Receive, Scope, Send

from gateway.api.incoming import Headers, read_body
from gateway.errors import ClientClosedRequest, MethodNotAllowedError
from gateway.pipeline import Parse
from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completion
from gateway.wire.embeddings import parse_embedding


@asgi("/v1/chat/completions", copy_scope=False)
async def chat_completions(scope: Scope, receive: Receive, send: Send) -> None:
    await _answer(parse_chat, scope, receive, send)


@asgi("/v1/completions", copy_scope=False)
async def completions(scope: Scope, receive: Receive, send: Send) -> None:
    await _answer(parse_completion, scope, receive, send)


@asgi("/v1/embeddings", copy_scope=False)
async def embeddings(scope: Scope, receive: Receive, send: Send) -> None:
    await _answer(parse_embedding, scope, receive, send)


async def _answer(parse: Parse, scope: Any, receive: Receive, send: Send) -> None:
    if scope["method"] != "POST":
        raise MethodNotAllowedError(f"Not allowed: {scope['method']} {scope['path']}", headers={"allow": "POST"})
    state = scope["litestar_app"].state
    try:
        raw = await read_body(scope, receive, state.max_body_bytes)
    except ClientClosedRequest:
        return  # it left before it had asked anything
    answer = await state.pipeline.answer(parse, raw, Headers(scope), receive)
    await answer(scope, receive, send)
