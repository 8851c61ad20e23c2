"""Prices out of the `genai-prices` package's own data (https://github.com/pydantic/genai-prices). Writes nothing.

Where that data knows several prices of one model, one is taken, and the proposal says so: the base of a tiered one
(providers charge long prompts more), and the dearest of the day where the hour counts. Searches, audio and whatever
else is not counted in tokens of text is left out.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from gateway.config import Config, DeploymentConfig, ModelConfig, ProviderConfig
from gateway.ledger.errors import LedgerError
from gateway.ledger.price import Price
from gateway.ledger.prices import place_name, price_in_dollars

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, ModelPrice

_KEYS = {
    "input_usd_per_mtok": "input_mtok",
    "output_usd_per_mtok": "output_mtok",
    "cached_input_usd_per_mtok": "cache_read_mtok",
    "cache_write_input_usd_per_mtok": "cache_write_mtok",
}


class Wanted(msgspec.Struct, frozen=True):
    """A name in the price table, and where it is served."""

    model: str
    provider: ProviderConfig
    upstream_name: str


class Found(msgspec.Struct, frozen=True):
    model: str
    theirs: str  # "openai/gpt-4o-mini"
    price: Price
    remarks: tuple[str, ...]  # what was left out


def wanted(config: Config, models: Sequence[str] = ()) -> list[Wanted]:
    """These models, or all that the config names and a provider serves. Raises LedgerError for an unknown one."""
    if not models:
        return [each for model in config.model if not model.is_glob for each in _places(config, model, model.name)]
    found: list[Wanted] = []
    for name in models:
        model = next((m for m in config.model if m.name == name), None)
        model = model or next((m for m in config.model if m.is_glob and fnmatchcase(name, m.name)), None)
        if model is None:
            raise LedgerError(f"the config has no model named {name!r}")
        found += _places(config, model, name)
    return found


def look_up(wanted: Wanted, now: datetime) -> Found | None:
    """None where the data knows no such provider or model. Raises LedgerError without the package."""
    provider = wanted.provider
    by_id = provider.kind if provider.kind != "openai" else None  # their URLs are everybody's own
    try:
        theirs, model = _snapshot().find_provider_model(
            wanted.upstream_name, None, by_id, None if by_id else provider.base_url
        )
    except LookupError:
        return None
    prices, remarks = _dearest(model, now)
    dollars = {}
    for ours, key in _KEYS.items():
        amount = getattr(prices, key, None)
        if amount is not None and hasattr(amount, "tiers"):
            remarks.append(f"{key.removesuffix('_mtok')} costs more from {amount.tiers[0].start:,} tokens on")
            amount = amount.base
        if amount is not None:
            dollars[ours] = amount
    if not dollars:
        return None  # it is paid by the request, the image, the second
    return Found(wanted.model, f"{theirs.id}/{model.id}", price_in_dollars(dollars), tuple(remarks))


def _places(config: Config, model: ModelConfig, name: str) -> Iterator[Wanted]:
    """The model's own price is that of its first provider; the others have theirs where the config says so."""
    providers = {provider.name: provider for provider in config.provider}
    served = [place for place in model.places if place.provider in providers]

    def at(place: DeploymentConfig, table_name: str) -> Wanted:
        return Wanted(table_name, providers[place.provider], place.upstream_name or name)

    if served:
        yield at(served[0], name)
    for place in {place.provider: place for place in served if place.prices}.values():
        yield at(place, place_name(name, place.provider))


def _snapshot() -> "DataSnapshot":
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError as error:
        raise LedgerError("importing prices needs the package genai-prices: pip install 'tollhouse[prices]'") from error
    return get_snapshot()


def _dearest(model: "ModelInfo", now: datetime) -> "tuple[ModelPrice, list[str]]":
    """Of today's hours."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=30, second=0, microsecond=0)
    hours = [model.get_prices(midnight + timedelta(hours=hour)) for hour in range(24)]
    dearest = max(hours, key=lambda prices: _base(prices, "input_mtok") + _base(prices, "output_mtok"))
    return dearest, [] if all(prices == dearest for prices in hours) else ["less at some hours of the day"]


def _base(prices: "ModelPrice", key: str) -> float:
    amount = getattr(prices, key, None) or 0
    return float(getattr(amount, "base", amount))
