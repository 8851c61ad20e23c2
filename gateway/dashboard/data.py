"""The numbers behind the charts: what `tollhouse costs` prints, as JSON."""

from typing import get_args

import msgspec

from gateway.errors import InvalidRequestError, NotFoundError
from gateway.ledger.reports import CostReport, costs, parse_since
from gateway.store.database import Database
from gateway.store.reports import By
from gateway.tenants.errors import UnknownName


class DashboardData(msgspec.Struct, frozen=True, kw_only=True):
    """`tenant` is the one whose books these are; None: all tenants'. Money is in nano-dollars."""

    tenant: str | None
    report: CostReport


async def data(database: Database, *, tenant: str | None, since: str = "", by: str = "day") -> DashboardData:
    """`since` as on the command line ("": from the start). Raises InvalidRequestError, NotFoundError, StoreError."""
    if by not in get_args(By):
        raise InvalidRequestError(f"'by' is one of {', '.join(get_args(By))}", param="by")
    try:
        day = parse_since(since) if since else None
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(f"'since': {error}", param="since") from error
    try:
        report = await costs(database, by=by, tenant=tenant, since=day)  # type: ignore[arg-type]  # checked above
    except UnknownName as error:
        raise NotFoundError(str(error), param="tenant") from error
    return DashboardData(tenant=tenant, report=report)
