"""Refuses what the translation of a client's own request could not say, where only the translation is understood."""

from gateway.errors import InvalidRequestError
from gateway.wire.inference import Inference


def refuse_lost(inference: Inference) -> None:
    """Raises InvalidRequestError naming the capability."""
    if inference.native is not None and inference.native.lost:
        what = ", ".join(inference.native.lost)
        message = f"The model '{inference.model}' does not support {what}: name a model whose provider has this API."
        raise InvalidRequestError(message, param="model", code="missing_capability")
