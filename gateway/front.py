"""Litestar's application, and before its router the doors that are used all day.

A plain ASGI handler at a fixed path is found by one look-up and called; it tells its own refusals. What Litestar does
on the way to it (routing, scope state, a wrapped `send` that knows whether an answer began) costs as much as a tenth of
a proxied request. Everything else, such a path under another spelling included, goes Litestar's way.
"""

from collections.abc import Coroutine
from typing import Any

from litestar import Litestar
from litestar.handlers import ASGIRouteHandler


class Application(Litestar):
    def __init__(self, route_handlers: list[Any], **options: Any) -> None:
        super().__init__(route_handlers, **options)
        plain = [handler for handler in route_handlers if isinstance(handler, ASGIRouteHandler)]
        self._doors: dict[str, Any] = {path: handler.fn for handler in plain for path in handler.paths}

    def __call__(self, scope: Any, receive: Any, send: Any) -> Coroutine[Any, Any, None]:
        door = self._doors.get(scope.get("path"))
        if door is None:
            return super().__call__(scope, receive, send)
        scope["litestar_app"] = self
        return door(scope, receive, send)  # type: ignore[no-any-return]
