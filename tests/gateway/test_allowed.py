"""Whatever a scope says: what is listed is what may be named, and `auto` has candidates from nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.allowed import check_model, check_tier, may_use, narrowed, narrows_models
from gateway.errors import PermissionDeniedError
from gateway.tenants.types import Scope
from routing.errors import NoCapableModel
from routing.router import Router
from routing.types import Candidate, Policy, Prompt, Tier

MODELS = ("gpt-4o", "gpt-4o-mini", "claude", "smollm2", "embed")
NAMES = st.sampled_from(MODELS)
GLOBS = st.sampled_from([*MODELS, "gpt-*", "*", "g*o", "[cs]*", "nothing*", "GPT-*"])
TIERS = st.dictionaries(
    st.sampled_from(["small", "medium", "large"]), st.lists(NAMES, min_size=1, unique=True).map(tuple), min_size=1
)
SCOPES = st.builds(
    Scope,
    models=st.none() | st.lists(GLOBS, min_size=1).map(tuple),
    tiers=st.none() | st.lists(st.sampled_from(["small", "medium", "large", "gone"]), min_size=1).map(tuple),
)


def policy(tiers: dict[str, tuple[str, ...]]) -> Policy:
    first = next(iter(tiers))
    return Policy(
        tiers=tuple(Tier(name=name, models=models) for name, models in tiers.items()),
        candidates={model: Candidate(model=model) for model in MODELS},
        default_tier=first,
        fallback_tier=first,
    )


@given(TIERS, SCOPES, st.sampled_from(["", "Hello", "Write a function in Python that sorts a list."]))
def test_auto_has_the_candidates_that_may_be_named(tiers: dict[str, tuple[str, ...]], scope: Scope, text: str) -> None:
    allowed = {model for models in tiers.values() for model in models if may_use(scope, model, tiers)}
    left = narrowed(policy(tiers), scope, tiers)
    if left is None:
        assert not allowed
        return
    for tier in left.tiers:
        assert set(tier.models) <= set(tiers[tier.name])
        assert not tier.models or scope.tiers is None or tier.name in scope.tiers
    for wanted in (None, *tiers):
        decision = Router(left).choose(Prompt(text=text, tier=wanted))
        assert set(decision.candidates) == allowed
        assert decision.tier in (scope.tiers or tiers)


@given(TIERS, SCOPES, NAMES)
def test_what_may_not_be_named_is_refused_in_words(tiers: dict[str, tuple[str, ...]], scope: Scope, model: str) -> None:
    if may_use(scope, model, tiers):
        check_model(scope, model, tiers)
        return
    with pytest.raises(PermissionDeniedError, match=f"may not use the model '{model}'") as refused:
        check_model(scope, model, tiers)
    assert all(glob in refused.value.message for glob in scope.models or ())
    assert all(tier in refused.value.message for tier in scope.tiers or ())


@given(TIERS, st.sampled_from([None, Scope(), Scope(endpoints=("embeddings",))]), NAMES)
def test_a_scope_that_says_nothing_of_models_allows_all(
    tiers: dict[str, tuple[str, ...]], scope: Scope | None, model: str
) -> None:
    assert not narrows_models(scope)
    assert may_use(scope, model, tiers)


def test_a_tier_is_refused_by_name() -> None:
    check_tier(Scope(models=("x",)), "large")
    check_tier(Scope(tiers=("small", "large")), "large")
    with pytest.raises(PermissionDeniedError, match="tier 'large'"):
        check_tier(Scope(tiers=("small",)), "large")


def test_a_narrowed_policy_still_says_what_its_models_lack() -> None:
    left = narrowed(
        policy({"small": ("smollm2",), "large": ("claude",)}), Scope(tiers=("small",)), {"small": ("smollm2",)}
    )
    assert left is not None
    with pytest.raises(NoCapableModel, match="tools"):
        Router(left).choose(Prompt(text="Hello", needs=frozenset({"tools"})))
