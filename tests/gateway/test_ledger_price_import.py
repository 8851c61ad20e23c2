"""Prices of the installed genai-prices: as its own calculator would have it, or with a remark that says why not."""

import sys
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import Usage as TheirUsage

from gateway.config import ProviderConfig, parse
from gateway.ledger.errors import LedgerError
from gateway.ledger.price_import import Wanted, look_up, wanted
from gateway.wire.usage import Usage

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
CONFIG = parse(b"""
[[provider]]
name = "openai"
base_url = "https://api.openai.com/v1"
[[provider]]
name = "claude"
kind = "anthropic"
base_url = "https://claude.example.com"
[[provider]]
name = "own"
base_url = "http://10.0.0.1/v1"
[[model]]
name = "gpt-4o-mini"
provider = "openai"
[[model]]
name = "sonnet"
provider = "claude"
upstream_name = "claude-sonnet-4-5"
[[model]]
name = "nobody-knows-it"
provider = "own"
[[model]]
name = "spread"
deployments = [
  { provider = "own" },
  { provider = "openai", upstream_name = "gpt-4o", input_usd_per_mtok = 9.0 },
]
[[model]]
name = "o*"
provider = "openai"
""")
PROVIDERS = {provider.name: provider for provider in CONFIG.provider}
OURS = Usage(prompt_tokens=1000, cached_tokens=500, cache_write_tokens=100, completion_tokens=300)
THEIRS = TheirUsage(input_tokens=1000, cache_read_tokens=500, cache_write_tokens=100, output_tokens=300)


@pytest.mark.parametrize("provider", ["openai", "claude"])
def test_a_cost_is_what_their_own_calculator_says(provider: str) -> None:
    snapshot = get_snapshot()
    name = {"openai": "openai", "claude": "anthropic"}[provider]
    theirs = next(each for each in snapshot.providers if each.id == name)
    compared = 0
    for model in theirs.models:
        found = look_up(Wanted(model.id, PROVIDERS[provider], model.id), NOW)
        if found is None or found.remarks or "audio" in model.id or "image" in model.id:
            continue
        known = snapshot.find_provider_model(model.id, theirs, None, None)[1]
        if any(getattr(known.get_prices(NOW), key, None) is None for key in ("input_mtok", "output_mtok")):
            continue  # an embedding model, say
        exact = known.calc_price(THEIRS, theirs, genai_request_timestamp=NOW).total_price
        assert abs(Decimal(found.price.cost_nanousd(OURS)) - exact * 10**9) <= 1, model.id
        compared += 1
    assert compared >= 5


def test_tiers_and_hours_are_remarked_upon() -> None:
    found = look_up(Wanted("sonnet", PROVIDERS["claude"], "claude-sonnet-4-5"), NOW)
    assert found is not None
    assert "input costs more from 200,000 tokens on" in found.remarks
    deepseek = ProviderConfig(name="d", base_url="https://api.deepseek.com/v1")
    by_day = look_up(Wanted("d", deepseek, "deepseek-chat"), NOW)
    by_night = look_up(Wanted("d", deepseek, "deepseek-chat"), NOW.replace(hour=23))
    assert by_day is not None
    assert by_day == by_night  # the dearest of the day, whenever it is asked for
    assert "less at some hours of the day" in by_day.remarks
    assert by_day.theirs == "deepseek/deepseek-chat"


def test_what_is_asked_for_is_what_providers_serve() -> None:
    names = [(each.model, each.provider.name, each.upstream_name) for each in wanted(CONFIG)]
    assert names == [
        ("gpt-4o-mini", "openai", "gpt-4o-mini"),
        ("sonnet", "claude", "claude-sonnet-4-5"),
        ("nobody-knows-it", "own", "nobody-knows-it"),
        ("spread", "own", "spread"),
        ("spread@openai", "openai", "gpt-4o"),
    ]
    assert [each.upstream_name for each in wanted(CONFIG, ["o3"])] == ["o3"]  # by the glob
    with pytest.raises(LedgerError, match="no model named 'gpt-5'"):
        wanted(CONFIG, ["gpt-5"])


def test_what_nobody_knows_has_no_price() -> None:
    assert look_up(Wanted("m", PROVIDERS["own"], "gpt-4o"), NOW) is None
    assert look_up(Wanted("m", PROVIDERS["openai"], "there-is-no-such-model"), NOW) is None


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)
    with pytest.raises(LedgerError, match="pip install"):
        look_up(Wanted("m", PROVIDERS["openai"], "gpt-4o"), NOW)
