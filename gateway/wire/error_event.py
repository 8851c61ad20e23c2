"""An event that is named `error`: what it says, in OpenAI's shape. Some servers send the message alone as its data."""

from typing import Any

import msgspec

from gateway.wire.completeness import reason_in

NAME = b"error"
_UNSAID = "The upstream reported an error."


def error_payload(data: bytes) -> bytes:
    """The data as it came where it tells of an `error`, else an object that does."""
    try:
        told: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told = None
    if not isinstance(told, dict):
        told = {}
    elif told.get("error") is not None:
        return data
    base = {"message": reason_in(data) or _UNSAID, "type": "upstream_error", "param": None, "code": None}
    return msgspec.json.encode({"error": base | told})
