"""Money: whole nano-dollars, rounded once; history stands still; savings add up to the baseline."""

import asyncio
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.config import DeploymentConfig, ModelConfig
from gateway.ledger.price import Price
from gateway.ledger.prices import PriceBook, set_price, to_nanousd
from gateway.ledger.savings import compare
from gateway.store.database import Database
from gateway.store.errors import DuplicateRow
from gateway.store.prices import select_prices
from gateway.wire.usage import Usage

amounts = st.integers(0, 10**12)
tokens = st.integers(0, 10**8)
maybe = st.none() | amounts
prices = st.builds(
    Price, input=amounts, output=amounts, cached_input=amounts, cache_write_input=maybe, reasoning_output=maybe
)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    prompt, completion = draw(tokens), draw(tokens)
    cached = draw(st.integers(0, prompt))
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=cached,
        cache_write_tokens=draw(st.integers(0, prompt - cached)),
        completion_tokens=completion,
        reasoning_tokens=draw(st.integers(0, completion)),
    )


def model(name: str, dollars_in: float, dollars_out: float = 0.0, cached: float | None = None) -> ModelConfig:
    return ModelConfig(
        name=name, provider="p", input_usd_per_mtok=dollars_in, output_usd_per_mtok=dollars_out,
        cached_input_usd_per_mtok=cached,
    )  # fmt: skip


def dollars(whole: float, output: float) -> Price:
    return Price(input=to_nanousd(whole), output=to_nanousd(output), cached_input=to_nanousd(whole))


@given(prices, usages())
def test_a_cost_is_the_exact_one_rounded_half_up(price: Price, usage: Usage) -> None:
    write = price.input if price.cache_write_input is None else price.cache_write_input
    reasoning = price.output if price.reasoning_output is None else price.reasoning_output
    exact = Fraction(
        (usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens) * price.input
        + usage.cached_tokens * price.cached_input
        + usage.cache_write_tokens * write
        + (usage.completion_tokens - usage.reasoning_tokens) * price.output
        + usage.reasoning_tokens * reasoning,
        10**6,
    )
    cost = price.cost_nanousd(usage)
    assert isinstance(cost, int)
    assert Fraction(-1, 2) < cost - exact <= Fraction(1, 2)


@given(prices, usages())
def test_the_parts_of_a_cost_sum_to_the_total(price: Price, usage: Usage) -> None:
    parts = [
        Usage(prompt_tokens=usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens),
        Usage(prompt_tokens=usage.cached_tokens, cached_tokens=usage.cached_tokens),
        Usage(prompt_tokens=usage.cache_write_tokens, cache_write_tokens=usage.cache_write_tokens),
        Usage(completion_tokens=usage.completion_tokens - usage.reasoning_tokens),
        Usage(completion_tokens=usage.reasoning_tokens, reasoning_tokens=usage.reasoning_tokens),
    ]
    assert abs(sum(price.cost_nanousd(part) for part in parts) - price.cost_nanousd(usage)) <= 2  # five halves at most


@given(prices, usages())
def test_the_worst_case_is_not_exceeded_by_writes_and_thoughts(price: Price, usage: Usage) -> None:
    reserved = price.worst_nanousd(Usage(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens))
    assert price.cost_nanousd(replace(usage, cached_tokens=0)) <= reserved


@given(st.decimals(0, 100_000, places=9))
def test_dollars_as_written_are_exact(dollars: object) -> None:
    assert to_nanousd(str(dollars)) == Fraction(str(dollars)) * 10**9


def test_cached_prompt_tokens_are_billed_once_at_their_own_price() -> None:
    price = Price(input=to_nanousd(1000), output=0, cached_input=to_nanousd(100))  # 1.00 and 0.10 per thousand
    usage = Usage(prompt_tokens=1000, cached_tokens=900)
    assert price.cost_nanousd(usage) == to_nanousd("0.19")


def test_cache_writes_and_thoughts_have_prices_of_their_own() -> None:
    price = Price(
        input=to_nanousd(3),
        output=to_nanousd(15),
        cached_input=to_nanousd("0.3"),
        cache_write_input=to_nanousd("3.75"),
        reasoning_output=to_nanousd(10),
    )
    usage = Usage(
        prompt_tokens=1000, cached_tokens=500, cache_write_tokens=400, completion_tokens=200, reasoning_tokens=150
    )
    assert price.cost_nanousd(usage) == 100 * 3000 + 500 * 300 + 400 * 3750 + 50 * 15_000 + 150 * 10_000
    plain = replace(price, cache_write_input=None, reasoning_output=None)
    assert plain.cost_nanousd(usage) == 500 * 3000 + 500 * 300 + 200 * 15_000  # as the rest of prompt and answer


def test_an_engines_time_is_paid_by_the_microsecond() -> None:
    price = Price(hour=to_nanousd("3.6"))  # a thousandth of a dollar a second
    usage = Usage(prompt_tokens=1000, completion_tokens=1000, compute_us=2_500_001)
    assert price.cost_nanousd(usage) == to_nanousd("0.0025") + 1
    assert price.cost_nanousd(Usage(prompt_tokens=1000)) == 0


@pytest.mark.anyio
async def test_a_place_paid_by_the_hour_stands_beside_one_paid_by_the_token(database: Database) -> None:
    places = (DeploymentConfig(engine="local", usd_per_hour=3.6), DeploymentConfig(provider="far"))
    book = PriceBook(database)
    await book.start([ModelConfig(name="m", deployments=places, input_usd_per_mtok=1.0)])
    usage = Usage(prompt_tokens=1_000_000, compute_us=1_000_000)
    costs = {name: book.cost_nanousd("m", usage, provider=name) for name in ("local", "far")}
    assert costs == {"local": 1_000_000, "far": 10**9}
    for provider, hit in (("local", False), ("far", True)):
        saved = compare(book, model="m", provider=provider, usage=usage, baseline_model="m", hit=hit)
        assert saved.serving_cost_nanousd == costs[provider]
        spent = 0 if hit else costs[provider]
        assert spent + saved.saved_by_cache_nanousd + saved.saved_by_routing_nanousd == costs["far"]
    found = compare(book, model="m", usage=usage, baseline_model="m@local", hit=False)
    assert found.baseline_model is None  # how long it would have taken there, nobody knows
    await book.aclose()


def test_counts_that_make_no_sense_cost_no_less_than_nothing() -> None:
    price = Price(input=10**9, output=10**9, cached_input=10**8)
    assert price.cost_nanousd(Usage(prompt_tokens=-5, completion_tokens=-5, cached_tokens=-5)) == 0
    assert price.cost_nanousd(Usage(prompt_tokens=10, cached_tokens=99, cache_write_tokens=99)) == 1000
    assert price.cost_nanousd(Usage(completion_tokens=10, reasoning_tokens=99)) == 10_000


@pytest.mark.anyio
async def test_the_config_seeds_once_and_again_when_it_changes(database: Database) -> None:
    book = PriceBook(database)
    await book.start([model("gpt-4o", 2.5, 10.0, 1.25), model("small", 0.1, 0.2)])
    assert book.price("gpt-4o") == Price(input=2_500_000_000, output=10_000_000_000, cached_input=1_250_000_000)
    assert book.price("small").cached_input == 100_000_000  # none given: as input
    await book.seed([model("gpt-4o", 2.5, 10.0, 1.25), model("small", 0.1, 0.2)])
    assert len(await select_prices(database)) == 2
    before = datetime.now(UTC).timestamp()
    await book.seed([model("gpt-4o", 5.0, 10.0, 1.25), model("small", 0.1, 0.2)])
    assert len(await select_prices(database)) == 3
    assert book.price("gpt-4o").input == 5_000_000_000
    assert book.price("gpt-4o", at=before).input == 2_500_000_000  # history stands still
    assert book.price("gpt-4o", at=0.0).input == 2_500_000_000  # before all history: its first price
    assert book.price("small", at=before) == book.price("small")
    await book.aclose()


@pytest.mark.anyio
async def test_an_operators_row_rules_until_the_config_changes(database: Database) -> None:
    book = PriceBook(database, interval_s=0.02)
    await book.start([model("m", 1.0)])
    await set_price(database, "m", dollars(0.7, 0))
    await asyncio.sleep(0.4)
    assert book.price("m").input == 700_000_000  # noticed without a restart
    again = PriceBook(database)
    await again.start([model("m", 1.0)])  # the config says what it said: the table rules
    assert again.price("m").input == 700_000_000
    await again.seed([model("m", 0.5)])
    assert again.price("m").input == 500_000_000
    await book.aclose()
    await again.aclose()


@pytest.mark.anyio
async def test_a_price_of_tomorrow_waits(database: Database) -> None:
    book = PriceBook(database)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    await set_price(database, "m", dollars(1, 1))
    await set_price(database, "m", dollars(2, 2), valid_from=tomorrow)
    await book.start()
    assert book.price("m").input == 10**9
    assert book.price("m", at=tomorrow.timestamp() + 1).input == 2 * 10**9
    with pytest.raises(DuplicateRow):
        await set_price(database, "m", dollars(2, 2), valid_from=tomorrow)
    with pytest.raises(ValueError, match="time zone"):
        await set_price(database, "m", dollars(2, 2), valid_from=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="negative"):
        await set_price(database, "m", dollars(-1, 2))
    await book.aclose()


@pytest.mark.anyio
async def test_exact_names_come_before_globs_in_the_configs_order(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    book = PriceBook(database)
    await book.start([model("probe-*", 1.0), model("probe-large-*", 2.0), model("probe-free", 0.0)])
    assert book.price("probe-1").input == 10**9
    assert book.price("probe-large-1").input == 10**9  # the first glob that matches, as when the model is looked up
    assert book.price("probe-free") == Price(known=True)
    assert not book.price("nobody").known
    assert book.cost_nanousd("nobody", Usage(prompt_tokens=1000)) == 0
    assert [record.message for record in caplog.records].count(
        "there is no price for the model 'nobody': it is booked as free"
    ) == 1
    await book.aclose()


@pytest.mark.anyio
async def test_two_gateways_that_start_at_once_seed_once(database_url: str) -> None:
    databases = [Database(database_url) for _ in range(4)]
    await asyncio.gather(*(database.open() for database in databases))
    books = [PriceBook(database) for database in databases]
    await asyncio.gather(*(book.start([model("m", 1.0)]) for book in books))
    assert len(await select_prices(databases[0])) == 1
    for book in books:
        assert book.price("m").input == 10**9
        await book.aclose()
    for database in databases:
        await database.aclose()


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> PriceBook:
    async def make(folder: Path) -> PriceBook:
        database = Database(f"sqlite:///{folder / 'books.db'}")
        await database.open()
        book = PriceBook(database)
        await book.start([model("cheap", 0.15, 0.6, 0.075), model("dear", 2.5, 10.0, 1.25), model("free", 0.0)])
        await book.aclose()
        await database.aclose()
        return book

    with asyncio.Runner() as runner:
        return runner.run(make(tmp_path_factory.mktemp("prices")))


@given(
    usage=usages(),
    name=st.sampled_from(["cheap", "dear", "free"]),
    baseline=st.sampled_from(["cheap", "dear", "free"]),
    hit=st.booleans(),
)
def test_spent_and_saved_add_up_to_the_baseline(
    book: PriceBook, usage: Usage, name: str, baseline: str, hit: bool
) -> None:
    found = compare(book, model=name, usage=usage, baseline_model=baseline, hit=hit)
    spent = 0 if hit else book.cost_nanousd(name, usage)
    assert found.baseline_cost_nanousd == book.cost_nanousd(baseline, usage)
    assert spent + found.saved_by_cache_nanousd + found.saved_by_routing_nanousd == found.baseline_cost_nanousd
    assert (found.saved_by_cache_nanousd > 0) == (hit and book.cost_nanousd(name, usage) > 0)


def test_routing_to_a_dearer_model_saves_a_negative_amount(book: PriceBook) -> None:
    usage = Usage(prompt_tokens=1_000_000)
    found = compare(book, model="dear", usage=usage, baseline_model="cheap", hit=False)
    assert found.saved_by_routing_nanousd == to_nanousd("0.15") - to_nanousd("2.5")


@pytest.mark.parametrize("baseline", [None, "", "nobody has a price for this"])
def test_without_a_baseline_routing_saves_nothing(book: PriceBook, baseline: str | None) -> None:
    found = compare(book, model="dear", usage=Usage(prompt_tokens=1000), baseline_model=baseline, hit=True)
    assert (found.baseline_model, found.baseline_cost_nanousd, found.saved_by_routing_nanousd) == (None, None, 0)
    assert found.saved_by_cache_nanousd == 2_500_000


@pytest.mark.anyio
async def test_a_provider_may_have_its_own_price_for_a_model(database: Database) -> None:
    places = (
        DeploymentConfig(provider="dear", input_usd_per_mtok=3.0),
        DeploymentConfig(provider="usual", upstream_name="x"),
    )
    spread = ModelConfig(name="m", deployments=places, input_usd_per_mtok=1.0, output_usd_per_mtok=2.0)
    book = PriceBook(database)
    await book.start([spread])
    usage = Usage(prompt_tokens=1_000_000, completion_tokens=1_000_000)
    costs = {name: book.cost_nanousd("m", usage, provider=name) / 10**9 for name in ("dear", "usual", "")}
    assert costs == {"dear": 5.0, "usual": 3.0, "": 3.0}
    await set_price(database, "m@dear", dollars(4.0, 2.0))
    await book.seed([spread])  # the table rules
    assert book.cost_nanousd("m", usage, provider="dear") == 6 * 10**9
    await book.seed([ModelConfig(name="m", provider="dear", input_usd_per_mtok=1.0, output_usd_per_mtok=2.0)])
    assert book.cost_nanousd("m", usage, provider="dear") == 3 * 10**9  # no longer a price of its own
    await book.aclose()
