"""POST /v1/embeddings."""

from typing import Any

from litestar import Request, post
from litestar.types import ASGIApp

from gateway.wire.embeddings import parse_embedding


@post("/v1/embeddings", status_code=200)
async def embeddings(request: Request[Any, Any, Any]) -> ASGIApp:
    raw = await request.body()
    return await request.app.state.pipeline.answer(parse_embedding, raw, request.headers.get, request.receive)
