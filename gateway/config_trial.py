"""Whether a config that reads well would work, without starting anything of it."""

from gateway.catalog import Catalog
from gateway.config import Config


def try_out(config: Config) -> None:
    """Raises RoutingError for a policy that contradicts itself: tasks that no head knows, say."""
    policy = Catalog(config, {}, {}).policy
    if policy is not None:
        from routing.router import Router  # numpy comes with it

        Router(policy)
