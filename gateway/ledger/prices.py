"""What tokens cost, at any time: the price table in memory, and arithmetic in whole nano-dollars.

The config seeds the table and the table rules. A price is in force from its `valid_from` until the model's next row, so
what a past request cost never changes.
"""

import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from fnmatch import fnmatchcase

import msgspec

from gateway.config import DeploymentConfig, ModelConfig
from gateway.store.database import Database
from gateway.store.prices import PriceRow, insert_price, seed_prices, select_price, select_prices
from gateway.store.versions import VersionWatch
from gateway.tenants.audit import PROGRAM, Actor, Target, acting
from gateway.wire.usage import Usage

log = logging.getLogger("tollhouse.ledger")
_MTOK = 1_000_000
_NANO = Decimal(1_000_000_000)
_MAX_RESOLVED = 4096  # names come from clients: the memory of globs resolved has to end somewhere


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """In nano-dollars per million tokens. `known` is False where nobody has set a price: all is free then."""

    input: int = 0
    output: int = 0
    cached_input: int = 0
    known: bool = True

    def cost_nanousd(self, usage: Usage) -> int:
        """Rounded once, half up. Cached tokens are part of the prompt's and have their own price."""
        prompt = max(0, usage.prompt_tokens)
        cached = min(max(0, usage.cached_tokens), prompt)
        completion = max(0, usage.completion_tokens)
        exact = (prompt - cached) * self.input + cached * self.cached_input + completion * self.output
        return (2 * exact + _MTOK) // (2 * _MTOK)


_UNKNOWN = Price(known=False)
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
        if not history:
            return _UNKNOWN
        moment = time.time() if at is None else at
        for valid_from, price in reversed(history):
            if valid_from <= moment:
                return price
        return history[0][1]

    def cost_nanousd(self, model: str, usage: Usage, at: float | None = None, *, provider: str = "") -> int:
        """At the provider's own price for the model, if it has one."""
        if self._places and (own := place_name(model, provider)) in self._places:
            model = own
        return self.price(model, at).cost_nanousd(usage)

    def dearest_nanousd(self, models: Sequence[str], usage: Usage) -> int:
        """The most that it costs at any of these models, wherever they run."""
        places = [place for place in self._places if place.startswith(tuple(f"{model}@" for model in models))]
        return max(self.price(name).cost_nanousd(usage) for name in (*models, *places))

    async def _seed(self, models: Sequence[ModelConfig]) -> None:
        self._config_order = [model.name for model in models]
        of_models = [(model.name, _amounts(model)) for model in models]
        of_places = [(place_name(m.name, own.server), _amounts(m, own)) for m in models for own in _priced(m)]
        changed = await seed_prices(self._database, [*of_models, *of_places])
        self._places = frozenset(name for name, _ in of_places)
        if changed:
            log.info("prices from the config: %s", ", ".join(changed))

    async def _reload(self) -> None:
        history: dict[str, History] = {}
        for row in await select_prices(self._database):
            price = Price(
                input=row.input_nanousd_per_mtok,
                output=row.output_nanousd_per_mtok,
                cached_input=row.cached_input_nanousd_per_mtok,
            )
            history.setdefault(row.model, []).append((row.valid_from.timestamp(), price))
        globs = [name for name in history if any(character in name for character in "*?[")]
        order = {name: index for index, name in enumerate(self._config_order)}
        self._globs = sorted(globs, key=lambda name: (order.get(name, len(order)), -len(name), name))
        self._history = history
        self._resolved = {}

    def _resolve(self, model: str) -> History:
        history = self._history.get(model)
        if history is None:
            glob = next((glob for glob in self._globs if fnmatchcase(model, glob)), None)
            history = self._history[glob] if glob is not None else []
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
    *,
    input_usd_per_mtok: float | str | Decimal,
    output_usd_per_mtok: float | str | Decimal,
    cached_input_usd_per_mtok: float | str | Decimal | None = None,
    valid_from: datetime | None = None,
    by: Actor = PROGRAM,
) -> PriceRow:
    """An operator's price, in force until a later row: from now on, or from a time with a zone. Raises ValueError."""
    if valid_from is not None and valid_from.tzinfo is None:
        raise ValueError("valid_from needs a time zone")
    cached = input_usd_per_mtok if cached_input_usd_per_mtok is None else cached_input_usd_per_mtok
    row = PriceRow(
        model=model,
        valid_from=valid_from or datetime.now(UTC),
        input_nanousd_per_mtok=to_nanousd(input_usd_per_mtok),
        output_nanousd_per_mtok=to_nanousd(output_usd_per_mtok),
        cached_input_nanousd_per_mtok=to_nanousd(cached),
        source="operator",
    )
    if min(row.amounts) < 0:
        raise ValueError("a price can't be negative")
    async with acting(database, by) as act:
        before = await select_price(act.transaction, model, row.valid_from)
        await insert_price(act.transaction, row)
        act.note("price.set", target=Target(model, model), before=before, after=row)
    return row


def to_nanousd(dollars: float | str | Decimal) -> int:
    """Dollars to nano-dollars, as written: 0.1 is a hundred million, whatever its nearest float is."""
    return int((Decimal(str(dollars)) * _NANO).quantize(Decimal(1), ROUND_HALF_UP))


def _priced(model: ModelConfig) -> list[DeploymentConfig]:
    """One deployment of each provider that has prices of its own."""
    return list({place.server: place for place in model.deployments if place.has_prices}.values())


def _amounts(model: ModelConfig, own: DeploymentConfig | None = None) -> tuple[int, int, int]:
    def price(name: str) -> float | None:
        given: float | None = getattr(own, name) if own is not None else None
        of_model: float | None = getattr(model, name)
        return of_model if given is None else given

    whole = price("input_usd_per_mtok") or 0.0
    cached = price("cached_input_usd_per_mtok")
    return (
        to_nanousd(whole),
        to_nanousd(price("output_usd_per_mtok") or 0.0),
        to_nanousd(whole if cached is None else cached),
    )
