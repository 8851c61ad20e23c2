"""Anthropic's list of models: what its clients read of GET /v1/models."""

from collections.abc import Iterable
from typing import Any

import msgspec

_encode = msgspec.json.encode


def models_page(names: Iterable[str]) -> bytes:
    """All of them, on one page."""
    data = [_model(name) for name in names]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return _encode({"data": data, "first_id": first, "has_more": False, "last_id": last})


def model_info(name: str) -> bytes:
    return _encode(_model(name))


def _model(name: str) -> dict[str, Any]:
    """Nobody here knows when it was released: then it is the epoch, as Anthropic has it."""
    unknown = dict.fromkeys(("capabilities", "deprecated_at", "line", "max_input_tokens", "max_tokens", "retires_at"))
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
        **unknown,
    }
