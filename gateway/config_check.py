"""Says what is wrong with a config in words: the path of each fault, and the nearest valid name."""

import difflib
import typing
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

Struct = TypeVar("Struct", bound=msgspec.Struct)


class ConfigError(Exception):
    """One or more faults, each a line that starts with where it is."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def suggest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def convert(tree: dict[str, Any], struct: type[Struct]) -> Struct:
    """The tree as a struct, or ConfigError with the path of the first fault."""
    try:
        return msgspec.convert(tree, struct)
    except msgspec.ValidationError as error:
        raise ConfigError([_explain(error, tree, struct)]) from error


def _explain(error: msgspec.ValidationError, tree: dict[str, Any], struct: type[msgspec.Struct]) -> str:
    """msgspec's "... - at `$.cache.ttl_s`" with the path in front, as a person would write it."""
    message, _, path = str(error).partition(" - at `$.")
    path = path.rstrip("`")
    table = path.partition("[...]")[0]
    if "[...]" in path and isinstance(tree.get(table), dict):  # msgspec does not say which key: try them one by one
        for key, value in tree[table].items():
            try:
                msgspec.convert(tree | {table: {key: value}}, struct)
            except msgspec.ValidationError as same:
                if str(same) == str(error):
                    path = path.replace("[...]", f".{key}", 1)
                    break
    if message.startswith("Invalid enum value"):
        found = message.split("'")[1] if "'" in message else ""
        choices = _choices(path, struct)
        message += f" (one of {', '.join(choices)}){suggest(found, choices)}"
    return f"{path}: {message}" if path else message


def _choices(path: str, kind: Any) -> list[str]:
    """The words that a Literal at `path` ("engine[0].kv_cache_dtype") allows."""
    for name in path.replace("]", "").replace("[", ".").split("."):
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            kind = typing.get_type_hints(kind)[name]
        else:  # an entry of a tuple or of a table
            kind = typing.get_args(kind)[1 if typing.get_origin(kind) is dict else 0]
    return [str(choice) for choice in typing.get_args(kind)]


def complain_about_unknown_keys(
    tree: dict[str, Any], struct: type[msgspec.Struct], hidden: tuple[str, ...] = ()
) -> None:
    """Raises ConfigError naming every key that no struct knows."""
    faults: list[str] = []
    _walk(tree, struct, "", faults, hidden)
    if faults:
        raise ConfigError(faults)


def _walk(value: Any, kind: Any, path: str, faults: list[str], hidden: tuple[str, ...] = ()) -> None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if not isinstance(value, dict):
            return  # the conversion will say so
        hints = typing.get_type_hints(kind)
        known = [name for name in kind.__struct_fields__ if name not in hidden]
        for key, inner in value.items():
            where = f"{path}.{key}" if path else key
            if key not in known:
                faults.append(f"{where}: unknown key{suggest(key, known)}")
            else:
                _walk(inner, hints[key], where, faults)
        return
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin is dict and isinstance(value, dict):
        for key, inner in value.items():
            _walk(inner, arguments[1], f"{path}.{key}", faults)
    elif origin is tuple and isinstance(value, list):
        for index, inner in enumerate(value):
            _walk(inner, arguments[0], f"{path}[{index}]", faults)
