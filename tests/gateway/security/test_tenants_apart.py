"""A tenant sees the same whether another tenant is there or not: noninterference, for any history of requests.

The method is Goguen and Meseguer's ("Security Policies and Security Models", 1982): a history is lived twice, once as
it is and once without what the other tenant did, and all that the one can see has to be equal: answers, headers,
errors, and whether a model was called, which is what the time of an answer tells.
"""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.gateway.security.world import ACTS, TEXTS, Act, Site

pytestmark = pytest.mark.anyio

HISTORIES = st.lists(
    st.builds(
        Act,
        who=st.integers(0, 1),
        what=st.sampled_from(ACTS),
        about=st.integers(0, len(TEXTS) - 1),
        how=st.integers(0, 8),
    ),
    min_size=2,
    max_size=14,
)


@given(history=HISTORIES)
@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    phases=(Phase.explicit, Phase.generate),
)
async def test_whatever_one_tenant_does_another_can_not_tell(site: Site, history: list[Act]) -> None:
    await _is_not_seen(site, history)


@pytest.mark.parametrize("what", ["chat", "chat_in_namespace", "message", "respond"])
@pytest.mark.parametrize("how", [0, 1, 2, 3])
async def test_the_very_same_question_is_new_to_another_tenant(site: Site, what: str, how: int) -> None:
    await _is_not_seen(site, [Act(0, what, 0, how), Act(0, what, 0, how), Act(1, what, 0, how)])


@pytest.mark.parametrize("what", ["look", "meddle"])
@pytest.mark.parametrize("how", range(8))
async def test_what_belongs_to_another_tenant_does_not_exist(site: Site, what: str, how: int) -> None:
    await _is_not_seen(site, [Act(0, "upload", 0, 0), Act(0, "respond", 0, 1), Act(1, what, 1, how)])


async def _is_not_seen(site: Site, history: list[Act]) -> None:
    """Alone first: what leaked out of the whole history would be there already."""
    site.new_texts()
    alone = await site.live([act for act in history if act.who == 1])
    assert await site.live(history) == alone


async def test_the_method_sees_what_it_should(site: Site) -> None:
    """One's own doings are seen: else all of the above would say nothing."""
    act = Act(1, "chat", 0, 0)
    first, second = await site.live([act, act])
    assert (dict(first.headers)["x-tollhouse-cache"], first.num_calls) == ("miss", 1)
    assert (dict(second.headers)["x-tollhouse-cache"], second.num_calls) == ("hit-exact", 0)
    similar = await site.live([act, Act(1, "chat", 1, 0)])
    assert dict(similar[1].headers)["x-tollhouse-cache"] == "hit-semantic"
    file = await site.live([Act(1, "upload", 0, 0), Act(1, "look", 0, 5)])
    assert file[1].body == "what it says"
