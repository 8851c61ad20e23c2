"""What an administrator does with tenants, teams and keys; command line and admin API call it. Knows no SQL, no HTTP.

Whatever is changed is noted in the audit table, in the same transaction (gateway.tenants.audit).
"""

from gateway.tenants.registry.keys import (
    NewKey,
    change_key,
    create_key,
    disable_key,
    enable_key,
    get_key,
    list_keys,
    rotate_key,
)
from gateway.tenants.registry.teams import change_team, create_team, disable_team, enable_team, get_team, list_teams
from gateway.tenants.registry.tenants import (
    change_tenant,
    create_first_tenant,
    create_tenant,
    delete_tenant,
    disable_tenant,
    enable_tenant,
    get_tenant,
    list_tenants,
)

__all__ = [
    "NewKey",
    "change_key",
    "change_team",
    "change_tenant",
    "create_first_tenant",
    "create_key",
    "create_team",
    "create_tenant",
    "delete_tenant",
    "disable_key",
    "disable_team",
    "disable_tenant",
    "enable_key",
    "enable_team",
    "enable_tenant",
    "get_key",
    "get_team",
    "get_tenant",
    "list_keys",
    "list_teams",
    "list_tenants",
    "rotate_key",
]
