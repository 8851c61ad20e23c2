"""What the bundled engine does not take is refused by the name of its field."""

from typing import Any

import pytest

from gateway.errors import InvalidRequestError
from gateway.upstream.engine_backend import EngineBackend
from tests.gateway.engine_requests import ask, chat, completion

pytestmark = pytest.mark.anyio

CLOCK = {"type": "function", "function": {"name": "clock"}}


def schema(value: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}


def tool(**function: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f"} | function}]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [CLOCK], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [CLOCK], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tools": [CLOCK], "tool_choice": {"type": "function"}}, "tool_choice.function.name"),
        ({"tools": [CLOCK], "tool_choice": {"type": "x"}}, "tool_choice.type"),
        ({"tools": [CLOCK], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools.tools"),
        ({"tools": [CLOCK, CLOCK]}, "tools"),
        ({"tools": [CLOCK] * 129}, "tools"),
        (tool(name="no name"), "tools[0].function.name"),
        (tool(parameters=[]), "tools[0].function.parameters"),
        (tool(parameters={"type": "array"}), "tools[0].function.parameters"),
        (tool(description=5), "tools[0].function.description"),
        (tool(parameters={"properties": {"a": {"type": "nothing"}}}) | {"tool_choice": "required"}, "tools"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"response_format": schema([1])}, "response_format.json_schema.schema"),
        ({"response_format": schema({"type": "string", "minLength": 2, "maxLength": 1})}, "response_format"),
        ({"response_format": schema({"type": "nothing"})}, "response_format"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
        ({"guided_regex": "a("}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"structured_outputs": {"grammar": "start: x"}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
        ({"tools": [CLOCK], "guided_regex": "a"}, "guided_regex"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
    ],
)
async def test_wrong_input_names_its_field(backend: EngineBackend, fields: dict[str, Any], param: str) -> None:
    for stream in (False, True):
        with pytest.raises(InvalidRequestError) as caught:
            await backend.send(chat(stream=stream, **fields))
        assert caught.value.param == param
    await ask(backend, max_tokens=1)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias[...]"),
        ({"min_p": 2}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"guided_choice": "a"}, "guided_choice"),
        ({"structured_outputs": []}, "structured_outputs"),
    ],
)
def test_misshapen_fields_are_refused_everywhere(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        chat(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize("fields", [{"best_of": 1, "n": 2}, {"best_of": 2, "stream": True}])
def test_best_of_has_rules(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        completion("x", **fields)
    assert caught.value.param == "best_of"
