"""What an answer must look like: `response_format`, and the fields that vLLM's clients use. Runs nothing."""

import json
from typing import Any

import msgspec

from engine.types import Grammar
from gateway.errors import InvalidRequestError
from gateway.upstream.engine_fields import field
from gateway.wire.body import invalid, missing
from gateway.wire.inference import Inference

# vLLM's guided_* fields, and the members of its structured_outputs that took their place.
_GUIDED = ("json", "regex", "choice", "grammar")


class Demand(msgspec.Struct, frozen=True):
    grammar: Grammar
    param: str  # the field that asks for it


def demand(inference: Inference) -> Demand | None:
    """Raises InvalidRequestError for two demands at once, or one that is misshapen."""
    demands = [found for found in (_response_format(inference), *_guided(inference)) if found is not None]
    if len(demands) > 1:
        raise invalid(demands[1].param, f"an answer can't follow '{demands[0].param}' as well")
    return demands[0] if demands else None


def _response_format(inference: Inference) -> Demand | None:
    response_format = field(inference, "response_format")
    if response_format is None or response_format["type"] == "text":
        return None
    if response_format["type"] == "json_object":
        return Demand(Grammar(kind="json_object"), "response_format")
    where = "response_format.json_schema.schema"
    schema = response_format["json_schema"].get("schema")
    if schema is None:
        raise missing(where)
    if not isinstance(schema, dict):
        raise InvalidRequestError(f"Invalid type for '{where}': expected an object.", param=where)
    return Demand(Grammar(kind="json_schema", source=json.dumps(schema)), "response_format")


def _guided(inference: Inference) -> list[Demand]:
    found = [(f"guided_{kind}", kind, field(inference, f"guided_{kind}")) for kind in _GUIDED]
    outputs = field(inference, "structured_outputs")
    if outputs is not None:
        unknown = sorted(name for name in outputs if name not in (*_GUIDED, "json_object") and outputs[name])
        if unknown:
            raise invalid(f"structured_outputs.{unknown[0][:64]}", f"expected one of {', '.join(_GUIDED)}")
        found += [(f"structured_outputs.{kind}", kind, outputs.get(kind)) for kind in _GUIDED]
    demands = [Demand(_grammar(kind, value, param), param) for param, kind, value in found if value is not None]
    if outputs is not None and outputs.get("json_object"):
        demands.append(Demand(Grammar(kind="json_object"), "structured_outputs.json_object"))
    return demands


def _grammar(kind: str, value: Any, param: str) -> Grammar:
    if kind == "json":
        if not isinstance(value, str | dict):
            raise invalid(param, "expected a JSON schema")
        return Grammar(kind="json_schema", source=value if isinstance(value, str) else json.dumps(value))
    if kind == "choice":
        return Grammar(kind="choice", source=json.dumps(value))  # the engine says what is wrong with it
    if not isinstance(value, str):
        raise invalid(param, "expected a string")
    return Grammar(kind="regex" if kind == "regex" else "lark", source=value)
