"""Which models and tiers a key's scope leaves it. A name is judged before anybody looks whether it exists."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from msgspec.structs import replace

from gateway.errors import PermissionDeniedError
from gateway.tenants.types import Scope
from routing.types import Policy

Tiers = Mapping[str, tuple[str, ...]]  # models by tier


def narrows_models(scope: Scope | None) -> bool:
    return scope is not None and (scope.models is not None or scope.tiers is not None)


def may_use(scope: Scope | None, model: str, tiers: Tiers) -> bool:
    """It matches one of the scope's globs, and stands in one of its tiers, as far as it names any."""
    if scope is None:
        return True
    if scope.models is not None and not any(fnmatchcase(model, glob) for glob in scope.models):
        return False
    return scope.tiers is None or any(model in tiers.get(tier, ()) for tier in scope.tiers)


def check_model(scope: Scope, model: str, tiers: Tiers) -> None:
    """Raises PermissionDeniedError."""
    if not may_use(scope, model, tiers):
        message = f"This API key may not use the model '{model}': it is good for {_said(scope)} only."
        raise PermissionDeniedError(message, param="model", code="model_not_allowed")


def check_tier(scope: Scope, tier: str) -> None:
    """Raises PermissionDeniedError."""
    if scope.tiers is not None and tier not in scope.tiers:
        message = f"This API key may not use the tier '{tier}': it is good for {_said(scope)} only."
        raise PermissionDeniedError(message, param="x-tollhouse-tier", code="tier_not_allowed")


def nothing_left(scope: Scope) -> PermissionDeniedError:
    """For `auto` where no tier has a model that the scope allows."""
    message = f"This API key may not use any model that 'auto' could choose: it is good for {_said(scope)} only."
    return PermissionDeniedError(message, param="model", code="model_not_allowed")


def narrowed(policy: Policy, scope: Scope, tiers: Tiers) -> Policy | None:
    """The policy with the models that the scope leaves; a tier without any hands over to others. None: none is left."""
    left = tuple(
        replace(
            tier,
            models=tuple(model for model in tier.models if may_use(scope, model, tiers))
            if scope.tiers is None or tier.name in scope.tiers
            else (),
        )
        for tier in policy.tiers
    )
    return replace(policy, tiers=left) if any(tier.models for tier in left) else None


def _said(scope: Scope) -> str:
    lists = (("models", scope.models), ("tiers", scope.tiers))
    return " of ".join(f"{what} {', '.join(names)}" for what, names in lists if names is not None)
