"""What the admin API takes and gives: flat JSON objects, in which unknown fields are refused."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.store.keys import KeyRow
from gateway.tenants.registry import NewKey
from gateway.tenants.registry.teams import TeamRow
from gateway.tenants.types import Capture, Limits, Scope, Tenant

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Moment = Annotated[datetime, Meta(tz=True)]
Texts = Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(min_length=1, max_length=200)]


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a client sends."""

    def given(self) -> dict[str, Any]:
        """The fields that were sent."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
            if value is not UNSET
        }


class _Limits(Body, kw_only=True):
    """null: none of its own; 0: unlimited."""

    requests_per_minute: Count | UnsetType | None = UNSET
    tokens_per_minute: Count | UnsetType | None = UNSET
    concurrent_requests: Count | UnsetType | None = UNSET


class _Tenant(_Limits, kw_only=True):
    baseline_model: str | UnsetType | None = UNSET
    default_max_tokens: Annotated[int, Meta(ge=1, le=2**63 - 1)] | UnsetType | None = UNSET
    capture: Capture | UnsetType = UNSET
    retention_days: Count | UnsetType | None = UNSET  # 0: for ever


class NewTenant(_Tenant, kw_only=True):
    name: Name


class TenantChanges(_Tenant, kw_only=True):
    name: Name | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET


class NewTeam(_Limits, kw_only=True):
    name: Name


class TeamChanges(_Limits, kw_only=True):
    name: Name | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET


class _Key(_Limits, kw_only=True):
    """null lifts a restriction, takes the key out of its team, or lets it never expire."""

    name: Name | UnsetType = UNSET
    team: Name | UnsetType | None = UNSET
    models: Texts | UnsetType | None = UNSET  # globs
    tiers: Texts | UnsetType | None = UNSET
    endpoints: Texts | UnsetType | None = UNSET
    ip_ranges: Texts | UnsetType | None = UNSET  # CIDR
    expires_at: Moment | UnsetType | None = UNSET


class NewKeyBody(_Key, kw_only=True):
    tenant: Name


class KeyChanges(_Key, kw_only=True):
    disabled: bool | UnsetType = UNSET


class LimitsView(msgspec.Struct, kw_only=True):
    requests_per_minute: int | None
    tokens_per_minute: int | None
    concurrent_requests: int | None


class TenantView(LimitsView, kw_only=True):
    id: str
    name: str
    baseline_model: str | None
    default_max_tokens: int | None
    capture: Capture
    retention_days: int | None
    disabled: bool


class TeamView(LimitsView, kw_only=True):
    id: str
    tenant: str
    name: str
    num_keys: int
    disabled: bool


class KeyView(LimitsView, kw_only=True):
    id: str
    tenant: str
    team: str | None
    name: str
    prefix: str
    models: list[str] | None
    tiers: list[str] | None
    endpoints: list[str] | None
    ip_ranges: list[str] | None
    expires_at: datetime | None
    disabled: bool
    created_at: datetime
    previous_until: datetime | None  # until when the secret before the last rotation works, too


class KeyWithSecret(KeyView, kw_only=True):
    secret: str  # the key itself: shown in this answer and never again


def tenant_view(tenant: Tenant) -> TenantView:
    own = {name: getattr(tenant, name) for name in TenantView.__struct_fields__ if hasattr(tenant, name)}
    return TenantView(**own, **_limits(tenant.limits))


def team_view(row: TeamRow) -> TeamView:
    team = row.team
    return TeamView(
        id=team.id,
        tenant=row.tenant_name,
        name=team.name,
        num_keys=row.num_keys,
        disabled=team.disabled,
        **_limits(team.limits),
    )


def key_view(row: KeyRow) -> KeyView:
    return KeyView(**_key(row))


def key_with_secret(row: KeyRow, made: NewKey) -> KeyWithSecret:
    return KeyWithSecret(secret=made.secret, **_key(row))


def _key(row: KeyRow) -> dict[str, Any]:
    key, scope = row.key, row.key.scope or Scope()
    own = {name: getattr(key, name) for name in ("id", "name", "prefix", "expires_at", "disabled")}
    lists = {name: list(value) if value else None for name, value in msgspec.structs.asdict(scope).items()}
    rest = {"created_at": row.created_at, "previous_until": row.previous_until}
    return {"tenant": row.tenant_name, "team": row.team_name} | own | lists | rest | _limits(key.limits)


def _limits(limits: Limits) -> dict[str, Any]:
    return msgspec.structs.asdict(limits)
