"""Changes by name: of a tenant's, team's or key's own fields, or of those of its limits and scope."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from gateway.tenants.types import Key, Limits, Scope, Team, Tenant

Owner = TypeVar("Owner", Tenant, Team, Key)


def changed(owner: Owner, changes: Mapping[str, object]) -> Owner:
    """`{"tokens_per_minute": 5}` changes that limit alone, `{"limits": Limits(...)}` all of them."""
    limits, scope = _of(Limits, changes), _of(Scope, changes)
    own = {name: value for name, value in changes.items() if name not in limits and name not in scope}
    after = msgspec.structs.replace(owner, **own)
    if limits:
        after = msgspec.structs.replace(after, limits=msgspec.structs.replace(after.limits, **limits))
    if scope:
        assert isinstance(after, Key)
        after = msgspec.structs.replace(after, scope=msgspec.structs.replace(after.scope or Scope(), **scope))
    return after


def _of(struct: type[msgspec.Struct], changes: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in changes.items() if name in struct.__struct_fields__}
