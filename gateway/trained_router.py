"""The router of a config with tiers, over the trained heads that fit its embedder. numpy comes with it."""

import logging

from gateway.config import home
from routing.errors import HeadMismatch
from routing.heads import Heads, load, load_shipped
from routing.router import Router
from routing.types import Policy

log = logging.getLogger("tollhouse.build")


def router_of(policy: Policy, embedder_id: str | None) -> Router:
    """Raises PolicyError. `embedder_id` None: there is no embedder."""
    return Router(policy, _heads(embedder_id))


def _heads(embedder_id: str | None) -> Heads:
    """The operator's own head, else the shipped one; without a fitting embedder, text features decide."""
    own = home() / "heads.npz"
    try:
        return load(own, embedder_id) if own.exists() else load_shipped(embedder_id)
    except HeadMismatch as error:
        log.warning("%s; until then the router decides from the text's features alone", error)
        return load_shipped(None)
