"""Turns every exception that leaves a handler, and Litestar's own 404, 405 and 413, into OpenAI's error shape."""

import logging
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException

from gateway.errors import (
    ApiError,
    InternalError,
    InvalidRequestError,
    MethodNotAllowedError,
    NotFoundError,
    OverloadedError,
    PayloadTooLarge,
)
from gateway.ids import new_id
from gateway.store.errors import StoreError
from gateway.telemetry.log import RefusalLine, log_refusal, now

MAX_PATH = 200  # of a path in the log: it is the caller's text

log = logging.getLogger("tollhouse.api")


def to_openai_shape(request: Request[Any, Any, Any], error: Exception) -> Response[dict[str, Any]]:
    """With a request id of its own, counted and logged: an operator sees who is turned away, and why."""
    told = error if isinstance(error, ApiError) else _translate(request, error)
    request_id = new_id()
    house = request.app.state.get("house")
    if house is not None:
        house.metrics.refuse(told.status, told.code or told.type)
    path = request.url.path[:MAX_PATH]
    log_refusal(
        RefusalLine(
            time=now(),
            request_id=request_id,
            method=str(request.method),
            path=path,
            http_status=told.status,
            error_code=told.code,
        )
    )
    headers = {"x-request-id": request_id, **told.headers}
    return Response(told.body(), status_code=told.status, headers=headers, media_type="application/json")


def _translate(request: Request[Any, Any, Any], error: Exception) -> ApiError:
    where = f"{request.method} {request.url.path}"
    if isinstance(error, StoreError):
        return OverloadedError("the database is away; please retry later", headers={"retry-after": "5"})
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        return NotFoundError(f"Invalid URL ({where})", code="unknown_url")
    if status == 405:
        return MethodNotAllowedError(f"Not allowed: {where}")
    if status == 413:
        return PayloadTooLarge("the request's body is larger than this gateway accepts ([server] max_body_mb)")
    if isinstance(error, HTTPException) and 400 <= status < 500:
        return InvalidRequestError(error.detail)
    log.exception("%s failed inside the gateway", where, exc_info=error)
    return InternalError("the gateway failed to handle this request")
