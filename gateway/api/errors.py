"""Turns every exception that leaves a handler, and Litestar's own 404, 405 and 413, into the error shape of the API."""

import logging
import re
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from gateway.answer import Answer, encode_headers
from gateway.api.incoming import Headers
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
from gateway.telemetry.masking import mask
from gateway.telemetry.metrics import Metrics
from gateway.wire.body import MAX_DEPTH_MESSAGE
from gateway.wire.messages.errors import REQUEST_ID, error_body

MAX_PATH = 200  # of a path in the log: it is the caller's text
_NAMED_FIELD = re.compile("field `([^`]*)`")

log = logging.getLogger("tollhouse.api")


def to_api_shape(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """For Litestar, which wants a response of its own."""
    told, headers, body = _tell(request.scope, error)
    return Response(body, status_code=told.status, headers=headers, media_type="application/json")


def refused(scope: Any, error: Exception) -> Answer:
    """For handlers that Litestar's router does not know of."""
    told, headers, body = _tell(scope, error)
    return Answer(body, status=told.status, headers=encode_headers(headers.items()))


def _tell(scope: Any, error: Exception) -> tuple[ApiError, dict[str, str], bytes]:
    """The error, its headers and its body: Anthropic's for its clients, OpenAI's for everybody else."""
    told = error if isinstance(error, ApiError) else _translate(scope, error)
    house = scope["litestar_app"].state.get("house")
    headers = turn_away(told, scope["method"], scope["path"], house.metrics if house is not None else None)
    if not is_anthropics(scope):
        return told, headers, told.encode()
    id = headers["x-request-id"]
    return told, headers | {REQUEST_ID: id}, msgspec.json.encode(error_body(told, id))


def is_anthropics(scope: Any) -> bool:
    """Whether a client of Anthropic's asks. Both APIs have models, below the same path; there the header tells."""
    path = scope["path"]
    if path == "/v1/models" or path.startswith("/v1/models/"):
        return Headers(scope)("anthropic-version") is not None
    return bool(path == "/v1/messages" or path.startswith("/v1/messages/"))


def turn_away(error: ApiError, method: str, path: str, metrics: Metrics | None) -> dict[str, str]:
    """Counts and logs a refusal, for operators to see who is turned away. Returns its headers, with a request id."""
    line = RefusalLine(
        time=now(),
        request_id=new_id(),
        method=method,
        path=mask(path[:MAX_PATH]),
        http_status=error.status,
        error_code=error.name,
    )
    log_refusal(line)
    if metrics is not None:
        metrics.refuse(error.status, error.name)
    return {"x-request-id": line.request_id, **error.headers}


def _translate(scope: Any, error: Exception) -> ApiError:
    where = f"{scope['method']} {scope['path']}"
    if isinstance(error, StoreError):
        return OverloadedError("the database is away; please retry later", headers={"retry-after": "5"})
    if isinstance(error, RecursionError):
        return InvalidRequestError(MAX_DEPTH_MESSAGE)
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        return NotFoundError(f"Invalid URL ({where})", code="unknown_url")
    if status == 405:
        return MethodNotAllowedError(f"Not allowed: {where}")
    if status == 413:
        return PayloadTooLarge("the request's body is larger than this gateway accepts ([server] max_body_mb)")
    if isinstance(error, HTTPException) and 400 <= status < 500:
        return _faults(error) or InvalidRequestError(error.detail)
    log.exception("%s failed inside the gateway", where, exc_info=error)
    return InternalError("the gateway failed to handle this request")


def _faults(error: HTTPException) -> InvalidRequestError | None:
    """What a typed handler found in a body or a query: every fault by its field, the first one in `param`."""
    found = [
        (_field(fault), fault["message"])
        for fault in error.extra or ()
        if isinstance(fault, dict) and "message" in fault
    ]
    if not found:
        return None
    said = "; ".join(f"{field}: {message}" if field else message for field, message in found)
    return InvalidRequestError(said, param=found[0][0])


def _field(fault: dict[str, Any]) -> str | None:
    """As the caller wrote it: `data` is what handlers call the body, and `by_` is `by` where Python lacks the word."""
    key = str(fault.get("key") or "")
    if key != "data":
        return key.removesuffix("_") or None
    named = _NAMED_FIELD.search(fault["message"])
    return named[1] if named else None
