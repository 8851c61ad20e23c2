"""From what an administrator got wrong to an answer in OpenAI's error shape."""

from typing import Any

from litestar import Request, Response

from gateway.api.errors import to_api_shape
from gateway.errors import ApiError, ConflictError, InvalidRequestError, NotFoundError
from gateway.store.errors import DuplicateRow, RowRefused
from gateway.tenants.errors import DuplicateName, StillInUse, TenantError, UnknownName


def tenant_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Of a TenantError, or of a row that the database does not take."""
    return to_api_shape(request, _translate(error))


def _translate(error: Exception) -> ApiError:
    if isinstance(error, DuplicateName | StillInUse):
        return ConflictError(str(error))
    if isinstance(error, DuplicateRow):
        return ConflictError("there is one already")
    if isinstance(error, RowRefused):
        return InvalidRequestError("the database can't hold such a text or number")
    return (
        NotFoundError(str(error), code="not_found")
        if isinstance(error, UnknownName)
        else InvalidRequestError(str(error))
    )


EXCEPTION_HANDLERS: Any = {TenantError: tenant_error, RowRefused: tenant_error}
