"""Which exceptions are somebody's input or the world, and so are told in a line. Asked only after one was raised."""

import sys

_EXPECTED = {
    "gateway.config_check": ("ConfigError",),
    "gateway.models.errors": ("ModelSourceError",),
    "gateway.store.errors": ("StoreError",),
    "gateway.tenants.errors": ("TenantError",),
    "gateway.errors": ("ApiError",),
    "gateway.ledger.errors": ("LedgerError",),
    "engine.errors": ("EngineError",),
    "semcache.errors": ("CacheError",),
    "routing.errors": ("RoutingError",),
}


def is_expected(error: Exception) -> bool:
    """An error's class can only come from a module that has been imported, so none is imported for the question."""
    if isinstance(error, OSError):
        return True
    for module, names in _EXPECTED.items():
        loaded = sys.modules.get(module)
        kinds = tuple(getattr(loaded, name) for name in names if hasattr(loaded, name))
        if isinstance(error, kinds):
            return True
    return False
