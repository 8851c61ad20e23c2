"""Checks the shape of an object inside a body, with the fault's path as `param`."""

from typing import Any, TypeVar

import msgspec

from gateway.errors import InvalidRequestError
from gateway.wire.body import MAX_DEPTH_MESSAGE, explain

SPARE_LEVELS = 300  # of nesting: what is read here is written and read again in deeper places

Struct = TypeVar("Struct", bound=msgspec.Struct)


def shaped(value: Any, struct: type[Struct], where: str) -> Struct:
    """`value` as a struct. Raises InvalidRequestError whose `param` begins with `where`."""
    try:
        return msgspec.convert(value, struct)
    except msgspec.ValidationError as error:
        raise explain(error, where) from error


def check_depth(raw: bytes, *values: Any) -> None:
    """Raises InvalidRequestError where `values`, out of the body `raw`, are nested too deeply to be told again."""
    if raw.count(b"{") + raw.count(b"[") < SPARE_LEVELS:
        return
    wrapped: Any = values
    for _ in range(SPARE_LEVELS):
        wrapped = [wrapped]
    try:
        msgspec.json.encode(wrapped)
    except RecursionError as error:
        raise InvalidRequestError(MAX_DEPTH_MESSAGE) from error


def unsupported(what: str, where: str) -> InvalidRequestError:
    return InvalidRequestError(f"Tollhouse does not support {what}.", param=where, code="unsupported_parameter")
