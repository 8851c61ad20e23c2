"""What was spent and saved, as the command line and the dashboard show it. Dollars are for them to format."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta

import msgspec

from gateway.store.database import Database
from gateway.store.reports import By, CostRow, sum_costs
from gateway.tenants.registry import get_tenant

_SUMS = (
    "num_requests",
    "num_failed",
    "num_hits",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "cost_nanousd",
    "saved_by_cache_nanousd",
    "saved_by_routing_nanousd",
)


class CostReport(msgspec.Struct, frozen=True, kw_only=True):
    by: By
    since: date | None
    rows: list[CostRow]  # sorted by tenant, then day, model or tier
    total: CostRow  # of all rows; its tenant and group are ""


async def costs(
    database: Database, *, by: By = "day", tenant: str | None = None, since: date | None = None
) -> CostReport:
    """From the UTC day `since` on, of one tenant (by name) or all. Raises UnknownName, StoreUnavailable.

    By model or tier, a request counts where its answer came from, with the cost of all its attempts; a hit counts where
    its stored answer came from.
    """
    tenant_id = (await get_tenant(database, tenant)).id if tenant is not None else None
    begin = datetime.combine(since, time(), UTC) if since is not None else None
    rows = await sum_costs(database, by, tenant_id=tenant_id, since=begin)
    return CostReport(by=by, since=since, rows=rows, total=total(rows))


def total(rows: Sequence[CostRow]) -> CostRow:
    sums = {name: sum(getattr(row, name) for row in rows) for name in _SUMS}
    return CostRow(tenant_id="", tenant_name="", group="", **sums)


def parse_since(text: str, today: date | None = None) -> date:
    """A day (2026-11-30), or a number of days back (7d). Raises ValueError."""
    if text.endswith("d") and text[:-1].isdigit():
        return (today or datetime.now(UTC).date()) - timedelta(days=int(text[:-1]))
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a day such as 2026-11-30 nor a number of days such as 7d") from None
