"""What is asked of names and numbers, whoever they belong to."""

import re

from gateway.tenants.errors import InvalidName, InvalidValue
from gateway.tenants.types import Limits

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LARGEST = 2**63 - 1  # of a BIGINT


def check_name(what: str, name: str) -> None:
    """Raises InvalidName."""
    if not _NAME.fullmatch(name):
        rule = "1 to 64 letters, digits, dots, dashes or underscores, the first a letter or digit"
        raise InvalidName(f"a {what}'s name has {rule}")


def check_number(name: str, number: int | None) -> None:
    """Raises InvalidValue."""
    if number is not None and number < 0:
        raise InvalidValue(f"{name} can't be negative")
    if number is not None and number > _LARGEST:
        raise InvalidValue(f"{name} can't be above {_LARGEST}")


def check_limits(limits: Limits) -> None:
    """Raises InvalidValue."""
    for name in Limits.__struct_fields__:
        check_number(name, getattr(limits, name))
