"""Fields of a request that only the bundled engine reads, and the refusal of those that it can't honour."""

from typing import Any

import msgspec

from gateway.errors import InvalidRequestError
from gateway.wire.inference import Inference

CAPABILITIES = frozenset({"tools", "json_schema", "json_object", "logprobs"})
"""What any model can do here that a request may need."""

_OF_OTHER_ENDPOINTS = {
    "chat.completions": ("prompt", "best_of", "echo", "suffix"),
    "completions": (
        *("messages", "tools", "tool_choice", "functions", "function_call", "response_format"),
        *("top_logprobs", "max_completion_tokens"),
    ),
    "embeddings": ("messages", "prompt"),
}


def check_endpoint(inference: Inference) -> None:
    """Raises InvalidRequestError, as OpenAI does, for a field that shapes answers of another endpoint only."""
    for name in _OF_OTHER_ENDPOINTS[inference.endpoint]:
        if field(inference, name):
            message = f"Unrecognized request argument supplied: {name}. It belongs to another endpoint."
            raise InvalidRequestError(message, param=name, code="unsupported_parameter")


def field(inference: Inference, name: str) -> Any:
    """A top-level field that is not typed; None when absent. The parser has checked its type."""
    value = inference.fields.get(name)
    return None if value is None else msgspec.json.decode(value)


def unsupported(what: str, param: str) -> InvalidRequestError:
    message = f"The bundled engine does not support {what}: name a model of a provider that does, or leave it out."
    return InvalidRequestError(message, param=param, code="unsupported_parameter")
