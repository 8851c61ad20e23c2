"""The operator's own key, from the environment: it opens the admin API and everybody's books; nothing else does."""

import hashlib
import hmac
import os

from gateway.config_check import ConfigError
from gateway.errors import AuthenticationError, PermissionDeniedError

VARIABLE = "TOLLHOUSE_ADMIN_KEY"
MIN_LENGTH = 32  # characters; `openssl rand -hex 32` makes 64


def admin_key() -> str:
    """ "" where none is set. Raises ConfigError for one that could be guessed."""
    key = os.environ.get(VARIABLE, "").strip()
    if key and len(key) < MIN_LENGTH:
        raise ConfigError([f"{VARIABLE} has {len(key)} characters, and needs {MIN_LENGTH}: openssl rand -hex 32"])
    return key


def is_admin(authorization: str | None) -> bool:
    """Takes the Authorization header. The same time for every wrong key: digests are compared, in constant time."""
    key = admin_key()
    if not key or authorization is None or authorization[:7].lower() != "bearer ":
        return False
    return hmac.compare_digest(_digest(authorization[7:].strip()), _digest(key))


def require_admin(authorization: str | None) -> None:
    """Raises AuthenticationError without a key at all, PermissionDeniedError for any other, a tenant's too."""
    if not admin_key():
        raise PermissionDeniedError(
            f"The admin API is off. To switch it on, set {VARIABLE} and start the gateway anew."
        )
    if not authorization:
        message = f"The admin API asks for the admin key: `Authorization: Bearer ${VARIABLE}`."
        raise AuthenticationError(message, headers={"WWW-Authenticate": "Bearer"})
    if not is_admin(authorization):
        raise PermissionDeniedError(f"The admin API takes the admin key only: `Authorization: Bearer ${VARIABLE}`.")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
