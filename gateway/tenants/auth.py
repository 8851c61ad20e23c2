"""Who is calling? Answered from memory by the key's hash, so that it costs microseconds and outlives the database.

The secret itself is never compared: it is hashed and the hash is looked up, so timing says nothing about it. The same
goes for messages: none repeats any part of what the caller sent.
"""

import asyncio
import time

from gateway.errors import AuthenticationError
from gateway.store.database import Database
from gateway.store.tenants import select_principals
from gateway.store.versions import VersionWatch
from gateway.tenants.keys import hash_key
from gateway.tenants.types import Principal

_SCHEME = {"WWW-Authenticate": "Bearer"}
_MISSING = (
    "You didn't provide an API key. Send it in an Authorization header: `Authorization: Bearer sk-th-...`. "
    "Keys are made with `tollhouse keys create`."
)
_UNKNOWN = "Incorrect API key provided. Keys are made with `tollhouse keys create`."


LOOK_EVERY_S = 0.1  # for unknown keys, all callers together: strangers must not become the database's load


class UnknownKeyError(AuthenticationError):
    pass


class Authenticator:
    """`start` before use, `aclose` after. What the CLI changes is noticed within `interval_s`."""

    def __init__(self, database: Database, *, interval_s: float = 0.5) -> None:
        self._database = database
        self._principals: dict[bytes, Principal] = {}
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

    def authenticate(self, authorization: str | None) -> Principal:
        """Takes the Authorization header. Raises AuthenticationError."""
        if not authorization or authorization[:7].lower() != "bearer ":
            raise AuthenticationError(_MISSING, headers=_SCHEME)
        key = authorization[7:].strip()
        principal = self._principals.get(hash_key(key))
        if principal is None:
            raise UnknownKeyError(_UNKNOWN if key else _MISSING, headers=_SCHEME)
        if principal.key.disabled:
            raise AuthenticationError("This API key has been disabled.", headers=_SCHEME)
        if principal.tenant.disabled:
            raise AuthenticationError("The tenant of this API key has been disabled.", headers=_SCHEME)
        return principal

    async def identify(self, authorization: str | None) -> Principal:
        """As `authenticate`, but a key that is not known is looked for once more: it may have been made just now."""
        try:
            return self.authenticate(authorization)
        except UnknownKeyError:
            if self._look is None:
                self._look = asyncio.create_task(self._look_again(), name="look for a new key")
            await asyncio.shield(self._look)
            return self.authenticate(authorization)

    async def _look_again(self) -> None:
        await asyncio.sleep(self._next_look - time.monotonic())
        self._next_look = time.monotonic() + LOOK_EVERY_S
        self._look = None  # whoever comes from now on waits for the next look: this one may miss their key
        await self._watch.poll()

    async def _reload(self) -> None:
        found = await select_principals(self._database)
        self._principals = {bytes.fromhex(key_hash): principal for key_hash, principal in found}
