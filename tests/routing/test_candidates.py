"""Who is tried in which order, and what is said when nobody can."""

from collections.abc import Callable

import pytest

from routing.candidates import Ranking
from routing.errors import NoCapableModel
from routing.types import Candidate, Policy, Prompt, Tier

PolicyOf = Callable[..., Policy]


def test_own_models_come_first_then_dearer_tiers_then_cheaper_ones(policy_of: PolicyOf) -> None:
    tiers = tuple(Tier(name=name, models=(f"{name}1", f"{name}2")) for name in "abcd")
    models = [model for tier in tiers for model in tier.models]
    policy = policy_of(tiers=tiers, candidates={model: Candidate(model=model) for model in models})
    assert Ranking(policy).rank(1, Prompt(text="")) == (1, ("b1", "b2", "c1", "c2", "d1", "d2", "a1", "a2"))


def test_a_model_of_two_tiers_is_tried_once(policy_of: PolicyOf) -> None:
    assert Ranking(policy_of()).rank(0, Prompt(text="")) == (0, ("tiny", "mini", "midi", "grand"))


def test_only_models_with_every_needed_capability_stay(policy_of: PolicyOf) -> None:
    ranking = Ranking(policy_of())
    assert ranking.rank(0, Prompt(text="", needs=frozenset({"tools"}))) == (0, ("mini", "grand"))
    assert ranking.rank(0, Prompt(text="", needs=frozenset({"images"}))) == (1, ("midi", "grand"))
    assert ranking.rank(0, Prompt(text="", needs=frozenset({"images", "tools"}))) == (2, ("grand",))


def test_only_models_whose_context_holds_the_prompt_stay(policy_of: PolicyOf) -> None:
    ranking = Ranking(policy_of())
    assert ranking.rank(0, Prompt(text="", num_tokens=1_999))[1][0] == "tiny"
    assert ranking.rank(0, Prompt(text="", num_tokens=2_000)) == (0, ("mini", "midi", "grand"))
    assert ranking.rank(0, Prompt(text="", num_tokens=16_000)) == (2, ("grand",))
    assert ranking.rank(0, Prompt(text="", num_tokens=16_000, at_least=1_999))[1][0] == "tiny"
    with pytest.raises(NoCapableModel, match="a context of more than 128000 tokens, and the largest is 128000"):
        ranking.rank(0, Prompt(text="", num_tokens=128_000))


def test_the_dearest_tier_falls_to_the_next_cheaper(policy_of: PolicyOf) -> None:
    tiers = (Tier(name="a", models=("tiny",)), Tier(name="b", models=("mini",)), Tier(name="c", models=()))
    ranking = Ranking(policy_of(tiers=tiers))
    assert ranking.rank(2, Prompt(text="")) == (1, ("mini", "tiny"))
    assert ranking.why_not(2, Prompt(text="")) == "c has no usable model"


@pytest.mark.parametrize(
    ("needs", "num_tokens", "missing"),
    [
        ({"audio"}, 10, "audio"),
        ({"audio", "tools", "video"}, 10, "audio and video"),
        ({"tools"}, 200_000, "tools with a context of more than 200000 tokens, and the largest is 128000"),
        (set(), 200_000, "a context of more than 200000 tokens, and the largest is 128000"),
    ],
)
def test_the_error_names_what_is_missing(policy_of: PolicyOf, needs: set[str], num_tokens: int, missing: str) -> None:
    with pytest.raises(NoCapableModel) as caught:
        Ranking(policy_of()).rank(0, Prompt(text="", needs=frozenset(needs), num_tokens=num_tokens))
    assert caught.value.missing == missing


def test_capabilities_that_exist_only_apart_are_named_together(policy_of: PolicyOf) -> None:
    ranking = Ranking(policy_of(tiers=(Tier(name="only", models=("mini", "midi")),)))
    with pytest.raises(NoCapableModel, match="images and tools in one model"):
        ranking.rank(0, Prompt(text="", needs=frozenset({"images", "tools"})))


def test_a_house_without_usable_models_says_so(policy_of: PolicyOf) -> None:
    with pytest.raises(NoCapableModel, match="no tier has any"):
        Ranking(policy_of(tiers=(Tier(name="empty", models=()),))).rank(0, Prompt(text=""))
