"""Model names, who serves them, and the policy that the router gets."""

from typing import Any

import pytest

from gateway.catalog import MAX_FLEETS, Catalog
from gateway.config import Config, parse
from gateway.errors import NotFoundError
from gateway.upstream.deployment import Deployment
from gateway.upstream.types import Outbound, Reply

CONFIG = """
[router]
default_tier = "large"
[[provider]]
name = "open"
base_url = "http://127.0.0.1:1/v1"
max_retries = 2
[[provider]]
name = "closed"
base_url = "http://127.0.0.1:1/v1"
api_key_env = "A_KEY_THAT_NOBODY_SETS"
[[engine]]
name = "local"
model = "x.gguf"
[[model]]
name = "exact"
provider = "open"
upstream_name = "theirs"
capabilities = ["tools"]
context_tokens = 100
[[model]]
name = "ex*"
provider = "open"
[[model]]
name = "small"
engine = "local"
[[model]]
name = "vectors"
provider = "open"
kind = "embedding"
[[model]]
name = "locked"
provider = "closed"
[tier.small]
models = ["small"]
[tier.large]
models = ["locked", "exact", "small"]
"""


class Nobody:
    name = "nobody"

    async def send(self, outbound: Outbound) -> Reply:
        raise AssertionError("a catalog calls nobody")

    async def aclose(self) -> None: ...


def catalog(text: str = CONFIG) -> Catalog:
    config: Config = parse(text.encode())
    backends: dict[str, Any] = {"open": Nobody(), "closed": Nobody(), "local": Nobody()}
    return Catalog(config, backends, {"local": 8192})


def only(catalog: Catalog, model: str) -> Deployment:
    """The deployment of a model that has one."""
    (deployment,) = catalog.fleet(model).deployments
    return deployment


def test_exact_names_win_over_globs_and_keep_their_upstream_name() -> None:
    found = only(catalog(), "exact")
    assert (found.model, found.upstream_model, found.max_retries) == ("exact", "theirs", 2)


def test_a_globs_name_is_passed_on_as_it_came() -> None:
    found = only(catalog(), "ex-anything")
    assert (found.model, found.upstream_model) == ("ex-anything", "ex-anything")


def test_a_deployment_is_kept_so_that_its_breaker_remembers() -> None:
    one = catalog()
    assert only(one, "exact").breaker is only(one, "exact").breaker
    assert only(one, "ex-1").breaker is not only(one, "ex-2").breaker


def test_invented_names_do_not_pile_up() -> None:
    one = catalog()
    breaker = only(one, "exact").breaker
    for number in range(MAX_FLEETS + 50):
        only(one, f"ex-{number}")
    assert len(one._of_globs) == MAX_FLEETS
    assert only(one, "exact").breaker is breaker  # and push nothing out that the config names


def test_an_edit_of_the_config_keeps_the_breakers_of_what_did_not_change() -> None:
    before = catalog()
    config = parse(CONFIG.replace('upstream_name = "theirs"', 'upstream_name = "new"').encode())
    backends = {name: only(before, model).backend for name, model in {"open": "vectors", "local": "small"}.items()}
    for name in ("vectors", "small", "exact"):
        only(before, name)
    after = Catalog(config, backends | {"closed": Nobody()}, {}, before)
    assert only(after, "vectors").breaker is only(before, "vectors").breaker
    assert only(after, "exact").breaker is not only(before, "exact").breaker


def test_what_stands_behind_a_name_follows_the_config() -> None:
    one = catalog()
    two = catalog(CONFIG.replace('upstream_name = "theirs"', 'upstream_name = "new"'))
    assert one.behind("exact") != two.behind("exact")
    assert one.behind("small") == two.behind("small")
    assert one.behind("auto") != two.behind("auto")
    assert one.behind("auto") == catalog().behind("auto")


def test_a_glob_of_a_provider_without_a_key_is_refused() -> None:
    one = catalog(CONFIG + '[[model]]\nname = "no-*"\nprovider = "closed"\n')
    with pytest.raises(NotFoundError, match="set A_KEY_THAT_NOBODY_SETS"):
        one.model("no-one", "chat")


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("nothing", "chat", "does not exist"),
        ("vectors", "chat", "is not a chat model"),
        ("exact", "embedding", "is not an embedding model"),
        ("locked", "chat", "set A_KEY_THAT_NOBODY_SETS"),
    ],
)
def test_what_cannot_be_asked_for_says_why(name: str, kind: str, says: str) -> None:
    with pytest.raises(NotFoundError, match=says) as refused:
        catalog().model(name, kind)
    assert (refused.value.param, refused.value.code) == ("model", "model_not_found")


def test_the_listing_has_what_can_be_asked_for() -> None:
    assert [name for name, _ in catalog().listing()] == ["auto", "exact", "small", "vectors"]


def test_the_policy_holds_usable_models_with_what_they_can_do() -> None:
    policy = catalog().policy
    assert policy is not None
    assert [(tier.name, tier.models) for tier in policy.tiers] == [("small", ("small",)), ("large", ("exact", "small"))]
    assert policy.candidates["exact"].capabilities == {"tools"}
    assert {"tools", "json_schema"} < policy.candidates["small"].capabilities  # the bundled engine can, unsaid
    assert (policy.candidates["exact"].context_tokens, policy.candidates["small"].context_tokens) == (100, 8192)
    assert (policy.default_tier, policy.fallback_tier) == ("large", "large")


def test_without_tiers_there_is_no_policy_and_no_auto() -> None:
    one = catalog(CONFIG[: CONFIG.index("[tier.small]")].replace('[router]\ndefault_tier = "large"', ""))
    assert one.policy is None
    assert "auto" not in [name for name, _ in one.listing()]


# Several deployments of one model.


SPREAD = (
    CONFIG
    + """
[[model]]
name = "spread"
balance = "least-busy"
deployments = [
  { provider = "open", upstream_name = "one", weight = 3 },
  { provider = "closed", upstream_name = "two" },
  { engine = "local" },
]
[[model]]
name = "shut"
deployments = [{ provider = "closed", upstream_name = "a" }, { provider = "closed", upstream_name = "b" }]
"""
)


def test_a_model_is_served_where_there_is_a_key() -> None:
    one = catalog(SPREAD)
    fleet = one.fleet("spread")
    assert [(each.upstream_model, each.weight) for each in fleet.deployments] == [("one", 3.0), ("spread", 1.0)]
    assert {each.model for each in fleet.deployments} == {"spread"}
    assert one.missing_key("spread") is None
    assert one.missing_key("shut") == "A_KEY_THAT_NOBODY_SETS"
    with pytest.raises(NotFoundError, match="set A_KEY_THAT_NOBODY_SETS"):
        one.model("shut", "chat")


def test_an_edit_keeps_each_deployments_memory() -> None:
    before = catalog(SPREAD)
    known = {each.upstream_model: each for each in before.fleet("spread").deployments}
    backends: dict[str, Any] = {"open": known["one"].backend, "closed": Nobody(), "local": known["spread"].backend}
    config = parse(SPREAD.replace("weight = 3", "weight = 5").encode())
    after = Catalog(config, backends, {"local": 8192}, before).fleet("spread").deployments
    assert [each.weight for each in after] == [5.0, 1.0]
    for deployment in after:
        assert deployment.breaker is known[deployment.upstream_model].breaker
        assert deployment.load is known[deployment.upstream_model].load


def test_what_stands_behind_a_name_is_all_its_deployments() -> None:
    one, two = catalog(SPREAD), catalog(SPREAD.replace('"two"', '"three"'))
    assert one.behind("spread") != two.behind("spread")
    assert one.behind("spread") == catalog(SPREAD.replace("weight = 3", "weight = 4")).behind("spread")
