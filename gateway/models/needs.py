"""Which models a config makes a gateway load. Knows nothing of where they lie or what runs them."""

from gateway.config import EMBEDDER, Config


def needs_embedder(config: Config) -> bool:
    """Whether router, semantic cache or a client's model use it: a gateway that merely forwards stays small.

    One tier alone leaves the router nothing to choose.
    """
    served = any(place.engine == EMBEDDER for model in config.model for place in model.places)
    return len(config.tier) > 1 or served or (config.cache.enabled and config.cache.semantic)
