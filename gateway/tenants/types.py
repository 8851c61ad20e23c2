"""Who is at the gate: tenants, their keys and what they may do."""

from typing import Literal

import msgspec

Capture = Literal["off", "signals", "text"]  # what the decisions table may keep of a tenant's requests


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """None: the config's [limits] decide. 0 is unlimited."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    limits: Limits = Limits()
    baseline_model: str | None = None  # the counterfactual: what this tenant would have used
    default_max_tokens: int | None = None  # reserved for a request that names no max_tokens
    capture: Capture = "signals"
    disabled: bool = False


class Key(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    tenant_id: str
    name: str
    prefix: str  # "sk-th-abcd", for people to tell keys apart
    disabled: bool = False


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated caller."""

    tenant: Tenant
    key: Key
