"""/admin/requests, /admin/costs, /admin/prices: the books, read a page at a time, and what models cost."""

from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec
from litestar import Controller, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from gateway.api.admin.access import Books, By, Gateway
from gateway.api.admin.views import Body, Moment
from gateway.errors import InvalidRequestError, NotFoundError
from gateway.ids import ID
from gateway.ledger.prices import price_in_dollars, set_price
from gateway.ledger.reports import CostReport, costs, parse_since
from gateway.store.prices import PriceRow, Source, select_prices
from gateway.store.reports import By as Group
from gateway.store.requests import AttemptRow, RequestRow, select_request, select_requests
from gateway.tenants.registry import get_tenant

Dollars = Annotated[float, Meta(ge=0, le=1_000_000)]  # per million tokens
Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="How many at most.")]
Day = Annotated[str | None, QueryParameter(description="2026-12-01, or a time: 2026-12-01T08:00:00Z.")]
Cursor = Annotated[str | None, QueryParameter(pattern=f"^{ID}$", description="`next` of the page before.")]


class RequestPage(msgspec.Struct):
    """Newest first."""

    data: list[RequestRow]
    next: str | None  # null: there is no more


class RequestDetail(msgspec.Struct):
    request: RequestRow
    attempts: list[AttemptRow]  # in order


class PriceView(msgspec.Struct, kw_only=True):
    model: str
    valid_from: datetime
    source: Source
    input_nanousd_per_mtok: int
    output_nanousd_per_mtok: int
    cached_input_nanousd_per_mtok: int
    cache_write_input_nanousd_per_mtok: int | None  # null: as input
    reasoning_output_nanousd_per_mtok: int | None  # null: as output
    nanousd_per_hour: int | None  # of an engine's time, where that is what costs


class NewPrice(Body):
    model: Annotated[str, Meta(min_length=1, max_length=200)]
    input_usd_per_mtok: Dollars
    output_usd_per_mtok: Dollars
    cached_input_usd_per_mtok: Dollars | None = None  # null: as input
    cache_write_input_usd_per_mtok: Dollars | None = None  # null: as input
    reasoning_output_usd_per_mtok: Dollars | None = None  # null: as output
    valid_from: Moment | None = None  # null: now


class Requests(Controller):
    path = "/requests"
    tags = ("ledger",)

    @get(summary="Requests in the books")
    async def list_requests(
        self,
        books: Books,
        tenant: FromQuery[str | None] = None,
        tenant_id: FromQuery[str | None] = None,
        key_id: FromQuery[str | None] = None,
        endpoint: FromQuery[str | None] = None,
        model: FromQuery[str | None] = None,
        tier: FromQuery[str | None] = None,
        status: FromQuery[str | None] = None,
        cache: FromQuery[str | None] = None,
        user: FromQuery[str | None] = None,
        since: Day = None,
        until: Day = None,
        after: Cursor = None,
        limit: Limit = 50,
    ) -> RequestPage:
        """Filters narrow each other. `tenant` is a name, `tenant_id` reaches the books of one that is deleted."""
        wanted = {
            "tenant_id": (await get_tenant(books, tenant)).id if tenant is not None else tenant_id,
            "key_id": key_id,
            "endpoint": endpoint,
            "model": model,
            "tier": tier,
            "status": status,
            "cache": cache,
            "user": user,
        }
        equal = {name: value for name, value in wanted.items() if value is not None}
        period = {"since": _moment("since", since), "until": _moment("until", until)}
        rows = await select_requests(books, equal, **period, before_id=after, limit=limit + 1)
        return RequestPage(rows[:limit], rows[limit - 1].id if len(rows) > limit else None)

    @get("/{request_id:str}", summary="One request with its attempts")
    async def get_request(self, request_id: FromPath[str], books: Books) -> RequestDetail:
        found = await select_request(books, request_id)
        if found is None:
            raise NotFoundError(f"there is no request {request_id!r} in the books (yet)", param="request_id")
        return RequestDetail(*found)


@get("/costs", tags=("ledger",), summary="What was spent and saved")
async def get_costs(
    books: Books,
    by_: Annotated[Group, QueryParameter(name="by")] = "day",
    tenant: FromQuery[str | None] = None,
    since: FromQuery[str | None] = None,
) -> CostReport:
    """Money in nano-dollars. `since`: a UTC day (2026-11-30), or days back (7d)."""
    try:
        day = parse_since(since) if since is not None else None
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(f"since: {error}", param="since") from error
    return await costs(books, by=by_, tenant=tenant, since=day)


class Prices(Controller):
    path = "/prices"
    tags = ("ledger",)

    @get(summary="What models cost, in nano-dollars per million tokens, all of history")
    async def list_prices(self, books: Books, model: FromQuery[str | None] = None) -> list[PriceView]:
        return [_price_view(row) for row in await select_prices(books) if model in (None, row.model)]

    @post(summary="Set a price; what is booked already stays")
    async def set_price(self, data: JSONBody[NewPrice], books: Books, gateway: Gateway, by: By) -> PriceView:
        configured = gateway.snapshot.config.model
        if not any(data.model == known.name or fnmatchcase(data.model, known.name) for known in configured):
            raise NotFoundError(f"the config has no model named {data.model!r}", param="model", code="model_not_found")
        fields = data.given()
        model, valid_from = fields.pop("model"), fields.pop("valid_from")
        amounts = {key: amount for key, amount in fields.items() if amount is not None}
        return _price_view(await set_price(books, model, price_in_dollars(amounts), valid_from=valid_from, by=by))


def _price_view(row: PriceRow) -> PriceView:
    price = row.price
    return PriceView(
        model=row.model,
        valid_from=row.valid_from,
        source=row.source,
        input_nanousd_per_mtok=price.input,
        output_nanousd_per_mtok=price.output,
        cached_input_nanousd_per_mtok=price.cached_input,
        cache_write_input_nanousd_per_mtok=price.cache_write_input,
        reasoning_output_nanousd_per_mtok=price.reasoning_output,
        nanousd_per_hour=price.hour,
    )


def _moment(name: str, text: str | None) -> datetime | None:
    """UTC unless it names a zone. Raises InvalidRequestError."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        message = f"{name}: {text!r} is not a time such as 2026-12-01 or 2026-12-01T08:00:00Z"
        raise InvalidRequestError(message, param=name) from error
