"""Model names, who serves them, and the policy that the router gets."""

from typing import Any

import pytest

from gateway.catalog import MAX_DEPLOYMENTS, Catalog
from gateway.config import Config, parse
from gateway.errors import NotFoundError
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


def test_exact_names_win_over_globs_and_keep_their_upstream_name() -> None:
    found = catalog().deployment("exact")
    assert (found.model, found.upstream_model, found.max_retries) == ("exact", "theirs", 2)


def test_a_globs_name_is_passed_on_as_it_came() -> None:
    found = catalog().deployment("ex-anything")
    assert (found.model, found.upstream_model) == ("ex-anything", "ex-anything")


def test_a_deployment_is_kept_so_that_its_breaker_remembers() -> None:
    one = catalog()
    assert one.deployment("exact").breaker is one.deployment("exact").breaker
    assert one.deployment("ex-1").breaker is not one.deployment("ex-2").breaker


def test_invented_names_do_not_pile_up() -> None:
    one = catalog()
    breaker = one.deployment("exact").breaker
    for number in range(MAX_DEPLOYMENTS + 50):
        one.deployment(f"ex-{number}")
    assert len(one._of_globs) == MAX_DEPLOYMENTS
    assert one.deployment("exact").breaker is breaker  # and push nothing out that the config names


def test_an_edit_of_the_config_keeps_the_breakers_of_what_did_not_change() -> None:
    before = catalog()
    config = parse(CONFIG.replace('upstream_name = "theirs"', 'upstream_name = "new"').encode())
    backends = {name: before.deployment(model).backend for name, model in {"open": "vectors", "local": "small"}.items()}
    for name in ("vectors", "small", "exact"):
        before.deployment(name)
    after = Catalog(config, backends | {"closed": Nobody()}, {}, before)
    assert after.deployment("vectors").breaker is before.deployment("vectors").breaker
    assert after.deployment("exact").breaker is not before.deployment("exact").breaker


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
