"""Who is at the gate: tenants, their teams and keys, and what they may do."""

from datetime import datetime
from typing import Literal

import msgspec

from gateway.tenants.periods import PeriodKind

OwnerKind = Literal["tenant", "team", "key"]  # whose a limit or a budget is
Capture = Literal["off", "signals", "text"]  # what the decisions table may keep of a tenant's requests


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """None, for a tenant: the config's [limits] decide; for a team or a key: none of its own. 0 is unlimited."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What a key may be used for. None: for everything. A list that is there is never empty."""

    models: tuple[str, ...] | None = None  # globs over the names that clients use
    tiers: tuple[str, ...] | None = None
    endpoints: tuple[str, ...] | None = None  # paths below /v1: "chat/completions", "audio" for all under it
    ip_ranges: tuple[str, ...] | None = None  # CIDR, IPv4 and IPv6


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    limits: Limits = Limits()
    baseline_model: str | None = None  # the counterfactual: what this tenant would have used
    default_max_tokens: int | None = None  # reserved for a request that names no max_tokens
    capture: Capture = "signals"
    retention_days: int | None = None  # of what is captured; None: what the config says, 0: for ever
    disabled: bool = False


class Team(msgspec.Struct, frozen=True, kw_only=True):
    """A named group of a tenant's keys, with limits that they share."""

    id: str
    tenant_id: str
    name: str
    limits: Limits = Limits()
    disabled: bool = False


class Key(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    tenant_id: str
    name: str
    prefix: str  # "sk-th-abcd", for people to tell keys apart
    team_id: str | None = None
    scope: Scope | None = None  # None: not narrowed at all
    limits: Limits = Limits()
    expires_at: datetime | None = None
    disabled: bool = False


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated caller."""

    tenant: Tenant
    key: Key
    team: Team | None = None


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant, a team or a key may spend in a UTC day or month. One hard and one soft of each period."""

    id: str
    tenant_id: str
    owner_kind: OwnerKind
    owner_id: str
    period: PeriodKind
    amount_nanousd: int
    hard: bool = True  # False: nothing is refused, answers carry a warning
    warn_percents: tuple[int, ...] = (80, 100)  # of the amount: each warns once in a period
    webhook_url: str = ""  # "": the config's [webhooks] url
