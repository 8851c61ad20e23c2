"""What tokens cost, at any time: the price table in memory.

The config seeds the table and the table rules. A price is in force from its `valid_from` until the model's next row, so
what a past request cost never changes.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from fnmatch import fnmatchcase

from gateway.config import DeploymentConfig, ModelConfig
from gateway.ledger.price import Price
from gateway.store.database import Database
from gateway.store.prices import PriceRow, Source, insert_prices, seed_prices, select_price, select_prices
from gateway.store.versions import VersionWatch
from gateway.tenants.audit import PROGRAM, Actor, Target, acting
from gateway.wire.usage import Usage

log = logging.getLogger("tollhouse.ledger")
_NANO = Decimal(1_000_000_000)
_MAX_RESOLVED = 4096  # names come from clients: the memory of globs resolved has to end somewhere


_UNKNOWN = Price(known=False)
_NO_HISTORY = [(0.0, _UNKNOWN)]
Dollars = float | str | Decimal
History = list[tuple[float, Price]]  # valid from (seconds since the epoch), oldest first


class PriceBook:
    """`start` before use, `aclose` after. A change of the table by another process is noticed within `interval_s`."""

    def __init__(self, database: Database, *, interval_s: float = 0.5) -> None:
        self._database = database
        self._history: dict[str, History] = {}
        self._globs: list[str] = []  # in the order in which they are tried
        self._config_order: list[str] = []
        self._places: frozenset[str] = frozenset()  # "model@provider" where the config has a price of its own for it
        self._resolved: dict[str, History] = {}
        self._watch = VersionWatch(database, "prices", self._reload, interval_s)

    async def start(self, models: Sequence[ModelConfig] = ()) -> None:
        """Raises StoreError."""
        await self._seed(models)
        await self._watch.start()

    async def seed(self, models: Sequence[ModelConfig]) -> None:
        """After a change of the config. Raises StoreError."""
        await self._seed(models)
        await self._reload()

    async def aclose(self) -> None:
        await self._watch.aclose()

    def price(self, model: str, at: float | None = None) -> Price:
        """The price in force at a time (seconds since the epoch; None: now); before the first row, the first row's."""
        history = self._resolved.get(model)
        if history is None:
            history = self._resolve(model)
        if len(history) == 1:
            return history[0][1]
        moment = time.time() if at is None else at
        for valid_from, price in reversed(history):
            if valid_from <= moment:
                return price
        return history[0][1]

    def cost_nanousd(self, model: str, usage: Usage, at: float | None = None, *, provider: str = "") -> int:
        """At the provider's own price for the model, if it has one."""
        return self.price_at(model, provider, at).cost_nanousd(usage)

    def price_at(self, model: str, provider: str, at: float | None = None) -> Price:
        """The provider's own for the model, if it has one."""
        if self._places and (own := place_name(model, provider)) in self._places:
            model = own
        return self.price(model, at)

    def dearest_nanousd(self, models: Sequence[str], usage: Usage) -> int:
        """The most that it may cost at any of these models, wherever they run."""
        places = [place for place in self._places if place.startswith(tuple(f"{model}@" for model in models))]
        return max(self.price(name).worst_nanousd(usage) for name in (*models, *places))

    async def _seed(self, models: Sequence[ModelConfig]) -> None:
        self._config_order = [model.name for model in models]
        of_models = [(model.name, price_in_dollars(model.prices)) for model in models]
        of_places = [
            (place_name(m.name, own.server), price_in_dollars(_together(m, own))) for m in models for own in _priced(m)
        ]
        changed = await seed_prices(self._database, [*of_models, *of_places])
        self._places = frozenset(name for name, _ in of_places)
        if changed:
            log.info("prices from the config: %s", ", ".join(changed))

    async def _reload(self) -> None:
        history: dict[str, History] = {}
        for row in await select_prices(self._database):
            history.setdefault(row.model, []).append((row.valid_from.timestamp(), row.price))
        globs = [name for name in history if any(character in name for character in "*?[")]
        order = {name: index for index, name in enumerate(self._config_order)}
        self._globs = sorted(globs, key=lambda name: (order.get(name, len(order)), -len(name), name))
        self._history = history
        self._resolved = {}

    def _resolve(self, model: str) -> History:
        history = self._history.get(model)
        if history is None:
            glob = next((glob for glob in self._globs if fnmatchcase(model, glob)), None)
            history = self._history[glob] if glob is not None else _NO_HISTORY
            if glob is None:
                log.warning("there is no price for the model %r: it is booked as free", model)
        if len(self._resolved) >= _MAX_RESOLVED:
            self._resolved.clear()
        self._resolved[model] = history
        return history


def place_name(model: str, provider: str) -> str:
    """What the price table calls a model where one provider has a price of its own for it."""
    return f"{model}@{provider}"


async def set_price(
    database: Database,
    model: str,
    price: Price,
    *,
    valid_from: datetime | None = None,
    source: Source = "operator",
    by: Actor = PROGRAM,
) -> PriceRow:
    """An operator's price, in force until a later row: from now on, or from a time with a zone. Raises ValueError."""
    if valid_from is not None and valid_from.tzinfo is None:
        raise ValueError("valid_from needs a time zone")
    if min(price.amounts) < 0:
        raise ValueError("a price can't be negative")
    row = PriceRow(model=model, valid_from=valid_from or datetime.now(UTC), price=price, source=source)
    async with acting(database, by) as act:
        before = await select_price(act.transaction, model, row.valid_from)
        await insert_prices(act.transaction, [row])
        act.note("price.set", target=Target(model, model), before=before, after=row)
    return row


def price_in_dollars(dollars: Mapping[str, Dollars]) -> Price:
    """By the config's keys; what is not given is free, or costs what the whole does that it is a part of."""
    known = {key.removesuffix("_usd_per_mtok"): to_nanousd(amount) for key, amount in dollars.items()}
    return Price(
        input=known.get("input", 0),
        output=known.get("output", 0),
        cached_input=known.get("cached_input", known.get("input", 0)),
        cache_write_input=known.get("cache_write_input"),
        reasoning_output=known.get("reasoning_output"),
        hour=known.get("usd_per_hour"),
    )


def to_nanousd(dollars: Dollars) -> int:
    """Dollars to nano-dollars, as written: 0.1 is a hundred million, whatever its nearest float is."""
    return int((Decimal(str(dollars)) * _NANO).quantize(Decimal(1), ROUND_HALF_UP))


def _priced(model: ModelConfig) -> list[DeploymentConfig]:
    """One deployment of each provider that has prices of its own."""
    return list({place.server: place for place in model.deployments if place.prices}.values())


def _together(model: ModelConfig, own: DeploymentConfig) -> dict[str, float]:
    """A deployment's own prices, and the model's where it has none of that kind."""
    by_hour, by_token = own.usd_per_hour is not None, model.usd_per_hour is None
    return own.prices if by_hour == by_token else model.prices | own.prices
