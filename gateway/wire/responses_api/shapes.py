"""Checks the shape of an object inside a body, with the fault's path as `param`."""

from typing import Any, TypeVar

import msgspec

from gateway.errors import InvalidRequestError
from gateway.wire.body import explain

Struct = TypeVar("Struct", bound=msgspec.Struct)


def shaped(value: Any, struct: type[Struct], where: str) -> Struct:
    """`value` as a struct. Raises InvalidRequestError whose `param` begins with `where`."""
    try:
        return msgspec.convert(value, struct)
    except msgspec.ValidationError as error:
        raise explain(error, where) from error


def unsupported(what: str, where: str) -> InvalidRequestError:
    return InvalidRequestError(f"Tollhouse does not support {what}.", param=where, code="unsupported_parameter")
