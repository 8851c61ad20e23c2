"""/admin/deployments: how each place where a model runs stands, as this gateway's own traffic found it."""

from typing import Literal

import msgspec
from litestar import get

from gateway.api.admin.access import Gateway
from gateway.upstream.deployment import Deployment


class DeploymentView(msgspec.Struct):
    """Latencies are moving averages; null: not measured yet."""

    model: str
    provider: str
    upstream_model: str
    weight: float
    state: Literal["closed", "open", "half-open"]  # of its breaker: closed is well
    open_for_s: float  # until it is tried again
    running: int  # calls under way
    first_token_s: float | None  # of streams
    whole_answer_s: float | None


@get("/deployments", tags=("config",), summary="How the places stand where models run; nothing is sent to find out")
async def get_deployments(gateway: Gateway) -> list[DeploymentView]:
    """Those that were called since the start."""
    return [_view(deployment) for deployment in gateway.snapshot.catalog.deployments()]


def _view(deployment: Deployment) -> DeploymentView:
    return DeploymentView(
        model=deployment.model,
        provider=deployment.backend.name,
        upstream_model=deployment.upstream_model,
        weight=deployment.weight,
        state=deployment.breaker.state,
        open_for_s=deployment.breaker.open_for_s,
        running=deployment.load.outstanding,
        first_token_s=deployment.load.latency_s(stream=True),
        whole_answer_s=deployment.load.latency_s(stream=False),
    )
