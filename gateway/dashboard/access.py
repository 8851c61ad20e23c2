"""Who may see which books: a tenant's key its own, the operator's key all of them."""

from gateway.errors import PermissionDeniedError
from gateway.tenants.admin_key import is_admin
from gateway.tenants.auth import Authenticator
from gateway.tenants.gatekeeper import Incoming


async def tenant_in_sight(
    authorization: str | None, authenticator: Authenticator, wanted: str = "", incoming: Incoming | None = None
) -> str | None:
    """The tenant to report on; None is all of them.

    `authorization` is the header, `wanted` the tenant asked for ("": all that may be seen), `incoming` the request, for
    keys with a scope. Raises AuthenticationError, and PermissionDeniedError for another tenant's books.
    """
    if is_admin(authorization):
        return wanted or None
    own = (await authenticator.identify(authorization, incoming)).tenant.name
    if wanted not in ("", own):
        raise PermissionDeniedError(f"This key sees the books of tenant {own!r} only.", param="tenant")
    return own
