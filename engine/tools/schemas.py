"""What a tool's JSON schema says of its parameters, for notations in which they are no JSON object."""

from dataclasses import dataclass
from typing import Any

from engine.tools.types import Tool

_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
ANY = frozenset({*_TYPES, "integer", "number"})
_COMBINED = {"allOf", "anyOf", "oneOf", "$ref", "patternProperties"}
_DEFINITIONS = ("$defs", "definitions")
_MAX_DEPTH = 20  # of references and alternatives that lead to others


@dataclass(slots=True, frozen=True)
class Parameter:
    """`schema`: a JSON schema that stands alone, with the definitions that it may refer to."""

    name: str
    schema: dict[str, Any]
    is_required: bool


def closed(parameters: dict[str, Any] | None) -> dict[str, Any]:
    """The schema, without parameters that it doesn't name: a small model would invent them without end."""
    schema = parameters or {"properties": {}}
    if "properties" in schema and not _COMBINED & schema.keys():
        schema = {"additionalProperties": False} | schema
    return schema | {"type": "object"}


def parameters_of(tool: Tool) -> list[Parameter]:
    """Those that the schema names at its root, in its order."""
    schema = tool.parameters or {}
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return []
    required = schema.get("required")
    definitions = {key: schema[key] for key in _DEFINITIONS if key in schema}
    return [
        Parameter(
            name,
            (definitions if _refers(each) else {}) | _as_object(each),
            isinstance(required, list) and name in required,
        )
        for name, each in properties.items()
    ]


def allows_others(tool: Tool) -> bool:
    """Whether there may be parameters that it does not name."""
    return closed(tool.parameters).get("additionalProperties") is not False


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that a "$ref" to a definition means; itself where there is none, or where it leads elsewhere."""
    root = schema
    for _ in range(_MAX_DEPTH):
        place, _, name = str(schema.get("$ref", "")).removeprefix("#/").partition("/")
        definitions = root.get(place) if place in _DEFINITIONS else None
        found = definitions.get(name) if isinstance(definitions, dict) else None
        if not isinstance(found, dict):
            break
        schema = {key: root[key] for key in _DEFINITIONS if key in root} | found
    return schema


def alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """What "anyOf" or "oneOf" offers, or "allOf" of one, each standing alone; the schema itself where there is none."""
    schema = resolved(schema)
    offered = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if not isinstance(offered, list) or ("allOf" in schema and len(offered) > 1):
        return [schema]
    definitions = {key: schema[key] for key in _DEFINITIONS if key in schema}
    return [definitions | _as_object(each) for each in offered]


def types_of(schema: dict[str, Any], depth: int = 0) -> frozenset[str]:
    """The JSON types that a schema may allow."""
    offered = alternatives(schema)
    if len(offered) > 1 and depth < _MAX_DEPTH:
        return frozenset().union(*(types_of(each, depth + 1) for each in offered))
    schema = resolved(offered[0])
    values = values_of(schema)
    if values is not None:
        return frozenset(map(type_of, values))
    named = schema.get("type")
    return frozenset([named] if isinstance(named, str) else map(str, named) if isinstance(named, list) else ANY)


def values_of(schema: dict[str, Any]) -> list[Any] | None:
    """The only values that there may be; None where they are not listed."""
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    return listed if isinstance(listed, list) and listed else None


def fits(value: Any, types: frozenset[str]) -> bool:
    return type_of(value) in types or ("number" in types and type_of(value) == "integer")


def type_of(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "integer" if isinstance(value, int) else "number"
    return next(name for name, kind in _TYPES.items() if isinstance(value, kind))


def _refers(schema: Any) -> bool:
    if isinstance(schema, dict):
        return "$ref" in schema or any(map(_refers, schema.values()))
    return isinstance(schema, list) and any(map(_refers, schema))


def _as_object(schema: Any) -> dict[str, Any]:
    """`true` and `false` are schemas, too."""
    return schema if isinstance(schema, dict) else {} if schema is not False else {"not": {}}
