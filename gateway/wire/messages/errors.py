"""Errors in Anthropic's shape, `{"type": "error", "error": {"type", "message"}, "request_id"}`, from OpenAI's and back.

Reference: https://platform.claude.com/docs/en/api/errors
"""

from typing import Any

import msgspec

from gateway.errors import ApiError

REQUEST_ID = "request-id"  # the header in which Anthropic's clients look for it, in every answer

_TYPES = {  # by HTTP status
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI = {  # type and code of each of Anthropic's types
    "invalid_request_error": ("invalid_request_error", None),
    "authentication_error": ("invalid_request_error", "invalid_api_key"),
    "billing_error": ("insufficient_quota", "insufficient_quota"),
    "permission_error": ("invalid_request_error", "permission_denied"),
    "not_found_error": ("invalid_request_error", "model_not_found"),
    "request_too_large": ("invalid_request_error", "request_too_large"),
    "rate_limit_error": ("requests", "rate_limit_exceeded"),
    "timeout_error": ("server_error", "timeout"),
    "overloaded_error": ("overloaded_error", "overloaded"),
}
_IN_STREAM = {  # OpenAI's types and codes where no status says what they mean
    "invalid_request_error": "invalid_request_error",
    "overloaded": "overloaded_error",
    "overloaded_error": "overloaded_error",
    "rate_limit_exceeded": "rate_limit_error",
    "upstream_timeout": "timeout_error",
}
TOO_LONG = "context_length_exceeded"
_SAID_TOO_LONG = "prompt is too long"  # how Anthropic's clients know it, and shorten their conversation


class _Error(msgspec.Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None


class _Body(msgspec.Struct):
    error: _Error


_decode = msgspec.json.Decoder(_Body).decode


def error_type(status: int) -> str:
    return _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")


def error_body(error: ApiError, request_id: str) -> dict[str, Any]:
    """An error of ours."""
    return _shape(error_type(error.status), _told(error.message, error.code), request_id)


def refusal_body(body: bytes, status: int, request_id: str) -> dict[str, Any]:
    """An upstream's refusal that came in OpenAI's shape."""
    error = _read(body)
    return _shape(error_type(status), _told(error.message or f"HTTP {status}", error.code), request_id)


def streamed_error_body(payload: bytes, request_id: str) -> dict[str, Any]:
    """An error that an upstream's stream broke off with, in OpenAI's shape."""
    error = _read(payload)
    kind = _IN_STREAM.get(str(error.code), _IN_STREAM.get(error.type or "", "api_error"))
    return _shape(kind, _told(error.message or "The upstream broke off.", error.code), request_id)


def openai_error(body: bytes) -> bytes:
    """Anthropic's error in OpenAI's shape; what can't be read is a server's error without words."""
    error = _read(body)
    message = error.message or "The upstream gave no reason."
    kind, code = _OPENAI.get(error.type or "", ("server_error", None))
    if message.startswith(_SAID_TOO_LONG):
        code = TOO_LONG
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": code}})


def said(body: bytes) -> str:
    """The message of an error."""
    return _read(body).message or "The upstream gave no reason."


def _read(body: bytes) -> _Error:
    try:
        return _decode(body).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Error()


def _told(message: str, code: str | int | None) -> str:
    return f"{_SAID_TOO_LONG}: {message}" if code == TOO_LONG and not message.startswith(_SAID_TOO_LONG) else message


def _shape(kind: str, message: str, request_id: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}
