"""Endpoints that pass through to a provider: /v1/moderations, /v1/audio/*, /v1/images/generations."""

from functools import partial
from typing import Any

from litestar import asgi
from litestar.types import Receive, Scope, Send

from gateway.api.incoming import Headers
from gateway.api.inference import answer
from gateway.wire.dialect import PlainDialect
from gateway.wire.inference import Endpoint, Inference
from gateway.wire.passing import parse_audio, parse_passing


@asgi("/v1/moderations", copy_scope=False)
async def moderations(scope: Scope, receive: Receive, send: Send) -> None:
    await _moderations(scope, receive, send)


async def _moderations(scope: Any, receive: Receive, send: Send) -> None:
    """The one whose clients need not name a model: the first of its kind answers then."""
    catalog = scope["litestar_app"].state.house.snapshot.catalog

    def parse(raw: bytes) -> Inference:  # once it is known who asks
        return parse_passing("moderations", catalog.default("moderation"), raw)

    await answer(PlainDialect(parse), scope, receive, send)


@asgi("/v1/audio/speech", copy_scope=False)
async def speech(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(PlainDialect(partial(parse_passing, "audio.speech", "")), scope, receive, send)


@asgi("/v1/images/generations", copy_scope=False)
async def images(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(PlainDialect(partial(parse_passing, "images.generations", "")), scope, receive, send)


@asgi("/v1/audio/transcriptions", copy_scope=False)
async def transcriptions(scope: Scope, receive: Receive, send: Send) -> None:
    await _audio("audio.transcriptions", scope, receive, send)


@asgi("/v1/audio/translations", copy_scope=False)
async def translations(scope: Scope, receive: Receive, send: Send) -> None:
    await _audio("audio.translations", scope, receive, send)


async def _audio(endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
    content_type = Headers(scope)("content-type")
    await answer(PlainDialect(partial(parse_audio, endpoint, content_type)), scope, receive, send)
