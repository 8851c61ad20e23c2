"""/dashboard: the page is open to anyone, the numbers behind it ask for a key."""

from typing import Any

import msgspec
from litestar import MediaType, Request, Response, get

from gateway.api.incoming import Headers
from gateway.dashboard import data, headers, page, tenant_in_sight


@get("/dashboard")
async def dashboard() -> Response[bytes]:
    return Response(page(), media_type=MediaType.HTML, headers=headers())


@get("/dashboard/data")
async def dashboard_data(request: Request[Any, Any, Any]) -> Response[bytes]:
    """`?tenant=&since=&by=`. A tenant's key sees its own books; the operator's sees all, or one `tenant`'s."""
    house, query = request.app.state.house, request.query_params
    header = Headers(request.scope)
    seen = await tenant_in_sight(header("authorization"), house.authenticator, query.get("tenant", ""), header)
    found = await data(house.database, tenant=seen, since=query.get("since", ""), by=query.get("by", "day"))
    return Response(msgspec.json.encode(found), media_type="application/json", headers={"cache-control": "no-store"})
