"""Who may see which books: a tenant's key its own, the operator's key all of them."""

import hmac
import os

from gateway.errors import PermissionDeniedError
from gateway.tenants.auth import Authenticator

ADMIN_KEY = "TOLLHOUSE_ADMIN_KEY"


def admin_key() -> str:
    """The operator's own key, from the environment; without it, nobody sees more than one tenant."""
    return os.environ.get(ADMIN_KEY, "")


async def tenant_in_sight(authorization: str | None, authenticator: Authenticator, wanted: str = "") -> str | None:
    """The tenant to report on; None is all of them.

    `authorization` is the header, `wanted` the tenant asked for ("": all that may be seen). Raises AuthenticationError,
    and PermissionDeniedError for another tenant's books.
    """
    operator = admin_key()
    if operator and authorization and hmac.compare_digest(authorization.encode(), f"Bearer {operator}".encode()):
        return wanted or None
    own = (await authenticator.identify(authorization)).tenant.name
    if wanted not in ("", own):
        raise PermissionDeniedError(f"This key sees the books of tenant {own!r} only.", param="tenant")
    return own
