"""Everything the gateway tells a client in anger, each with its HTTP status and OpenAI's type and code.

ApiError                       (status, type, code)
├── InvalidRequestError        400 invalid_request_error; `param` names the field
│   ├── ContextLengthExceeded  400 context_length_exceeded
│   ├── PayloadTooLarge        413 request_too_large
│   ├── UnsupportedEncoding    415 unsupported_content_encoding
│   └── MethodNotAllowedError  405 method_not_allowed
├── AuthenticationError        401 invalid_api_key
├── PermissionDeniedError      403
├── NotFoundError              404; model_not_found for models
├── RequestTimeout             408: the body did not come
├── ConflictError              409: what is asked for contradicts what is there; the admin API alone
├── RateLimitError             429 rate_limit_exceeded, retry-after
├── ClientClosedRequest        499, logged and never seen by anyone
├── UpstreamError              502: every candidate failed; an upstream's own 4xx passes as it came
│   └── UpstreamTimeout        504
├── UpstreamRefusal            an upstream's own no, in a stream that has begun
├── OverloadedError            503, retry-after
└── InternalError              500: our bug
"""

from typing import Any, ClassVar

import msgspec


class ApiError(Exception):
    """An answer in OpenAI's error shape: `{"error": {"message", "type", "param", "code"}}`."""

    status: int = 500
    type: ClassVar[str] = "server_error"
    code: str | None = None

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code if code is not None else type(self).code
        self.headers = headers or {}

    @property
    def name(self) -> str:
        """What the books, the log and the metrics call it."""
        return self.code or self.type

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def encode(self) -> bytes:
        return msgspec.json.encode(self.body())


class InvalidRequestError(ApiError):
    status = 400
    type = "invalid_request_error"


class ContextLengthExceeded(InvalidRequestError):
    code = "context_length_exceeded"


class PayloadTooLarge(InvalidRequestError):
    status = 413
    code = "request_too_large"


class UnsupportedEncoding(InvalidRequestError):
    status = 415
    code = "unsupported_content_encoding"


class MethodNotAllowedError(InvalidRequestError):
    status = 405
    code = "method_not_allowed"


class AuthenticationError(ApiError):
    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"


class PermissionDeniedError(ApiError):
    status = 403
    type = "invalid_request_error"
    code = "permission_denied"


class NotFoundError(ApiError):
    status = 404
    type = "invalid_request_error"


class RequestTimeout(ApiError):
    status = 408
    type = "invalid_request_error"
    code = "request_timeout"


class ConflictError(ApiError):
    status = 409
    type = "invalid_request_error"
    code = "conflict"


class RateLimitError(ApiError):
    status = 429
    type = "requests"
    code = "rate_limit_exceeded"


class ClientClosedRequest(ApiError):
    status = 499
    type = "client_closed_request"
    code = "client_closed_request"


class UpstreamError(ApiError):
    status = 502
    type = "upstream_error"
    code = "upstream_error"


class UpstreamTimeout(UpstreamError):
    status = 504
    code = "upstream_timeout"


class UpstreamRefusal(UpstreamError):
    """Told as it came, though its status can't be any more."""

    def __init__(self, body: dict[str, Any]) -> None:
        error = body["error"] if isinstance(body.get("error"), dict) else {}
        code = error.get("code")
        super().__init__(str(error.get("message") or body), code=None if code is None else str(code))
        self._body = body

    @property
    def name(self) -> str:
        return "upstream_refusal"  # the upstream's own code may be any text, and names go into books and metrics

    def body(self) -> dict[str, Any]:
        return self._body


class OverloadedError(ApiError):
    status = 503
    type = "overloaded_error"
    code = "overloaded"


class InternalError(ApiError):
    status = 500
    type = "server_error"
    code = "internal_error"
