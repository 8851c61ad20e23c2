"""POST /v1/chat/completions."""

from typing import Any

from litestar import Request, post
from litestar.types import ASGIApp

from gateway.wire.chat import parse_chat


@post("/v1/chat/completions", status_code=200)
async def chat_completions(request: Request[Any, Any, Any]) -> ASGIApp:
    raw = await request.body()
    return await request.app.state.pipeline.answer(parse_chat, raw, request.headers.get, request.receive)
