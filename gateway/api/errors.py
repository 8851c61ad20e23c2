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
    PayloadTooLarge,
)

log = logging.getLogger("tollhouse.api")


def to_openai_shape(request: Request[Any, Any, Any], error: Exception) -> Response[dict[str, Any]]:
    told = error if isinstance(error, ApiError) else _translate(request, error)
    return Response(told.body(), status_code=told.status, headers=told.headers, media_type="application/json")


def _translate(request: Request[Any, Any, Any], error: Exception) -> ApiError:
    where = f"{request.method} {request.url.path}"
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
