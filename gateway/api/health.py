"""Liveness, readiness and Prometheus metrics; none of them asks for a key, calls a model or costs anything."""

from typing import Any

from litestar import Request, Response, get, route

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@route("/health/live", http_method=["GET", "HEAD"])
async def live() -> dict[str, str]:
    return {"status": "ok"}


@route("/health/ready", http_method=["GET", "HEAD"])
async def ready(request: Request[Any, Any, Any]) -> Response[dict[str, Any]]:
    """200 once models are loaded and keys known, until the gateway drains. What is lost meanwhile, be it the database,
    Redis or a deployment, is said and does not make it unready."""
    house = request.app.state.house
    status_code = 200 if house.status == "ok" else 503
    return Response({"status": house.status, **house.condition()}, status_code=status_code)


@get("/metrics")
async def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
    return Response(request.app.state.house.metrics.exposition(), media_type=PROMETHEUS)
