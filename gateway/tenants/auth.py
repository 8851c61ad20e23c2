"""Who is calling? Answered from memory by the key's hash, so that it costs microseconds and outlives the database.

The secret itself is never compared: it is hashed and the hash is looked up, so timing says nothing about it. The same
goes for messages: none repeats any part of what the caller sent.
"""

import asyncio
import time
from collections.abc import Callable

from gateway.errors import AuthenticationError, PermissionDeniedError
from gateway.store.database import Database
from gateway.store.keys import SecretRow, select_secrets
from gateway.store.versions import VersionWatch
from gateway.tenants.gatekeeper import Gatekeeper, Incoming, Proxies
from gateway.tenants.keys import hash_key
from gateway.tenants.types import Principal

_SCHEME = {"WWW-Authenticate": "Bearer"}
_MISSING = (
    "You didn't provide an API key. Send it in an Authorization header: `Authorization: Bearer sk-th-...`. "
    "Keys are made with `tollhouse keys create`."
)
_EXPIRED = "This API key has expired."
_UNKNOWN = "Incorrect API key provided. Keys are made with `tollhouse keys create`."


LOOK_EVERY_S = 0.1  # for unknown keys, all callers together: strangers must not become the database's load


class UnknownKeyError(AuthenticationError):
    pass


class Secret:
    """One secret that opens the gate, and all that is asked before it does; most keys ask for nothing more."""

    __slots__ = ("gatekeeper", "is_bounded", "principal", "refusal", "replaced_at", "until")

    def __init__(self, row: SecretRow, proxies: Proxies) -> None:
        self.principal = row.principal
        self.refusal = _refusal(row.principal)
        key = row.principal.key
        self.until = key.expires_at.timestamp() if key.expires_at is not None else None
        self.replaced_at = row.replaced_at.timestamp() if row.replaced_at is not None else None
        narrowed = key.scope is not None and (key.scope.endpoints or key.scope.ip_ranges)
        self.gatekeeper = Gatekeeper(key.scope, proxies) if narrowed and key.scope is not None else None
        self.is_bounded = any(bound is not None for bound in (self.until, self.replaced_at, self.gatekeeper))

    def check(self, now: float, incoming: Incoming | None) -> None:
        """Raises AuthenticationError or PermissionDeniedError. Whoever can't say where a request is from is refused."""
        if self.replaced_at is not None and self.replaced_at <= now:
            raise AuthenticationError("This API key has been replaced by a new one.", headers=_SCHEME)
        if self.until is not None and self.until <= now:
            raise AuthenticationError(_EXPIRED, headers=_SCHEME)
        if self.gatekeeper is not None:
            if incoming is None:
                raise PermissionDeniedError("This API key may not be used here.")
            self.gatekeeper.check(incoming)


def _refusal(principal: Principal) -> str | None:
    if principal.key.disabled:
        return "This API key has been disabled."
    if principal.team is not None and principal.team.disabled:
        return "The team of this API key has been disabled."
    return "The tenant of this API key has been disabled." if principal.tenant.disabled else None


class Authenticator:
    """`start` before use, `aclose` after. What administrators change is noticed within `interval_s`."""

    def __init__(
        self,
        database: Database,
        proxies: Proxies | None = None,
        *,
        interval_s: float = 0.5,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.proxies = proxies or Proxies()
        self._database = database
        self._clock = clock
        self._secrets: dict[bytes, Secret] = {}
        self._current: dict[str, Secret] = {}  # by the key's id, those that no other has replaced
        self._watch = VersionWatch(database, "tenants", self._reload, interval_s)
        self._look: asyncio.Task[None] | None = None  # that has not begun to read yet
        self._next_look = 0.0

    async def start(self) -> None:
        """Raises StoreError when the database can't be read."""
        await self._watch.start()

    async def aclose(self) -> None:
        await self._watch.aclose()

    @property
    def error(self) -> str | None:
        """Why keys are not being refreshed at the moment; those known keep working."""
        return self._watch.error

    def authenticate(self, authorization: str | None, incoming: Incoming | None = None) -> Principal:
        """Takes the Authorization header. Raises AuthenticationError, and PermissionDeniedError for a scope's sake.

        `incoming` is the request itself: a key that is bound to endpoints or addresses works with it only.
        """
        if not authorization or authorization[:7].lower() != "bearer ":
            raise AuthenticationError(_MISSING, headers=_SCHEME)
        key = authorization[7:].strip()
        secret = self._secrets.get(hash_key(key))
        if secret is None:
            raise UnknownKeyError(_UNKNOWN if key else _MISSING, headers=_SCHEME)
        if secret.refusal is not None:
            raise AuthenticationError(secret.refusal, headers=_SCHEME)
        if secret.is_bounded:
            secret.check(self._clock(), incoming)
        return secret.principal

    def recall(self, key_id: str, path: str) -> Principal:
        """Who left a request for later, if its key is still good for it. Raises as `authenticate`."""
        secret = self._current.get(key_id)
        if secret is None:
            raise UnknownKeyError(_UNKNOWN, headers=_SCHEME)
        if secret.refusal is not None:
            raise AuthenticationError(secret.refusal, headers=_SCHEME)
        if secret.until is not None and secret.until <= self._clock():
            raise AuthenticationError(_EXPIRED, headers=_SCHEME)
        if secret.gatekeeper is not None:
            secret.gatekeeper.check_path(path)
        return secret.principal

    async def identify(self, authorization: str | None, incoming: Incoming | None = None) -> Principal:
        """As `authenticate`, but a key that is not known is looked for once more: it may have been made just now.

        Without an Authorization header the `x-api-key` counts, where Anthropic's clients put their key.
        """
        if not authorization and incoming is not None and (key := incoming("x-api-key")):
            authorization = f"Bearer {key}"
        try:
            return self.authenticate(authorization, incoming)
        except UnknownKeyError:
            if self._look is None:
                self._look = asyncio.create_task(self._look_again(), name="look for a new key")
            await asyncio.shield(self._look)
            return self.authenticate(authorization, incoming)

    async def _look_again(self) -> None:
        await asyncio.sleep(self._next_look - time.monotonic())
        self._next_look = time.monotonic() + LOOK_EVERY_S
        self._look = None  # whoever comes from now on waits for the next look: this one may miss their key
        await self._watch.poll()

    async def _reload(self) -> None:
        found = await select_secrets(self._database)
        self._secrets = {bytes.fromhex(row.hash): Secret(row, self.proxies) for row in found}
        current = (secret for secret in self._secrets.values() if secret.replaced_at is None)
        self._current = {secret.principal.key.id: secret for secret in current}
