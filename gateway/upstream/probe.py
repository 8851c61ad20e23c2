"""Asks a deployment that was left alone whether it is back, by a call that costs nothing and in nobody's request."""

import asyncio
import logging

from gateway.upstream.deployment import Deployment
from gateway.upstream.errors import UpstreamFailure

log = logging.getLogger("tollhouse.upstream")

_running: set[asyncio.Task[None]] = set()  # the event loop itself holds tasks weakly


def probe(deployment: Deployment) -> None:
    """Begins the half-open breaker's one trial; its outcome closes the breaker or opens it for longer."""
    assert deployment.check is not None
    if deployment.breaker.allow():
        task = asyncio.get_running_loop().create_task(_probe(deployment), name="health-check")
        _running.add(task)
        task.add_done_callback(_running.discard)


async def _probe(deployment: Deployment) -> None:
    assert deployment.check is not None
    name = f"{deployment.model} ({deployment.backend.name})"
    try:
        await deployment.check()
    except UpstreamFailure as failure:
        deployment.breaker.failure()
        log.info("%s is still not well: %s", name, failure)
    except BaseException:
        deployment.breaker.abandon()
        raise
    else:
        deployment.breaker.success()
        log.info("%s is back", name)
