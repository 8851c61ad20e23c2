"""POST /v1/completions."""

from typing import Any

from litestar import Request, post
from litestar.types import ASGIApp

from gateway.wire.completions import parse_completion


@post("/v1/completions", status_code=200)
async def completions(request: Request[Any, Any, Any]) -> ASGIApp:
    raw = await request.body()
    return await request.app.state.pipeline.answer(parse_completion, raw, request.headers.get, request.receive)
