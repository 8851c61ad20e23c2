"""A POST endpoint as a plain ASGI handler: the body in, an answer out, and whatever is refused in the API's own shape.

Litestar's request object, signature model and response cost as much as all of ours.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from gateway.answer import Answer, StreamAnswer
from gateway.api.errors import refused
from gateway.api.incoming import Headers, check_method, read_body
from gateway.heartbeat import Heartbeat

# Of the application's state, the body, the headers, ASGI's `receive`, and the client's end of a stream.
Respond = Callable[[Any, bytes, Headers, Receive, Heartbeat], Awaitable[Answer | StreamAnswer]]


def endpoint(path: str, respond: Respond) -> ASGIRouteHandler:
    return asgi(path, copy_scope=False)(partial(_serve, respond))


async def _serve(respond: Respond, scope: Scope, receive: Receive, send: Send) -> None:
    """One request, from its bytes to the last byte of its answer."""
    state = scope["litestar_app"].state
    heartbeat: Heartbeat = state.heartbeat(send)
    try:
        check_method(scope)
        raw = await read_body(scope, receive, state.max_body_bytes)
        told = await respond(state, raw, Headers(scope), receive, heartbeat)
    except Exception as error:
        heartbeat.stop()
        if heartbeat.opened:
            raise
        told = refused(scope, error)
    await told(scope, receive, heartbeat)
