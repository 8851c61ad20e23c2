"""Every act of an administrator leaves a row in the audit table, written in the transaction of the act itself.

    async with acting(database, by) as act:
        ...  # change something through act.transaction
        act.note("team.create", target=team, after=team)

An act without a note is a bug, and nothing of it happens. What is noted are the structs of gateway.tenants, which hold
no secrets.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from gateway.store import audit as store
from gateway.store.audit import AuditRow
from gateway.store.database import Database, Transaction
from gateway.tenants.types import Tenant
from gateway.url_view import without_secrets


class Actor(msgspec.Struct, frozen=True):
    """Who acts, and the address or host that they act from."""

    kind: Literal["admin-key", "cli", "program"]
    name: str
    source: str


class Named(Protocol):
    """What can be acted on: a tenant, a team, a key, ..."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


class Target(msgspec.Struct, frozen=True):
    """Something acted on that is no struct with an id and a name of its own."""

    id: str
    name: str
    tenant_id: str | None = None


PROGRAM = Actor("program", "tollhouse", "")  # where a program calls these functions and says nobody's name


class Act:
    """One transaction with what is to be noted of it."""

    def __init__(self, transaction: Transaction, by: Actor) -> None:
        self.transaction = transaction
        self._by = by
        self.notes: list[dict[str, Any]] = []

    def note(self, action: str, *, target: Named, before: Any = None, after: Any = None) -> None:
        """`action`: "noun.verb". `before` and `after`: what it was and is now, anything that JSON can say."""
        self.notes.append(
            {
                "actor_kind": self._by.kind,
                "actor": self._by.name,
                "source": self._by.source,
                "action": action,
                "tenant_id": target.id if isinstance(target, Tenant) else getattr(target, "tenant_id", None),
                "target_id": target.id,
                "target": target.name,
                "before": None if before is None else msgspec.json.encode(_told(before)),
                "after": None if after is None else msgspec.json.encode(_told(after)),
            }
        )


def _told(state: Any) -> Any:
    """What is kept of a state: of a webhook's URL only where it leads, for its path may be what opens it."""
    told = msgspec.to_builtins(state, builtin_types=(datetime,))
    if isinstance(told, dict) and told.get("webhook_url"):
        told["webhook_url"] = without_secrets(told["webhook_url"])
    return told


@asynccontextmanager
async def acting(database: Database, by: Actor = PROGRAM) -> AsyncIterator[Act]:
    """Raises StoreError; nothing is changed and nothing noted then."""
    async with database.write() as transaction:
        act = Act(transaction, by)
        yield act
        assert act.notes, "an act that is not noted"
        for note in act.notes:
            await store.insert_act(transaction, **note)


async def list_acts(
    database: Database,
    *,
    tenant_id: str | None = None,
    action: str | None = None,
    target_id: str | None = None,
    before_id: str | None = None,
    limit: int = 100,
) -> list[AuditRow]:
    """Newest first. `action`: "key.create", or "key" for all that is done to keys; `before_id`: go on from there."""
    return await store.select_acts(
        database, tenant_id=tenant_id, action=action, target_id=target_id, before_id=before_id, limit=limit
    )
