"""What schemas say of single parameters, and values of XML and Python's calls as JSON."""

from typing import Any

import pytest

from engine.errors import InvalidRequest
from engine.tools.calls.python_call import written_in_python
from engine.tools.calls.python_literals import arguments_in
from engine.tools.calls.xml_values import json_of
from engine.tools.format import ToolFormat
from engine.tools.schemas import ANY, allows_others, parameters_of, types_of
from engine.tools.types import Tool
from tests.engine.tool_notations import CLOCK, FORMATS, WEATHER, joined

TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        (TEXT, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"enum": ["a", 1, 1.5, None, True]}, {"string", "integer", "number", "null", "boolean"}),
        ({"const": []}, {"array"}),
        ({"anyOf": [TEXT, {"type": "null"}]}, {"string", "null"}),
        ({"oneOf": [{"anyOf": [TEXT, {"const": 1}]}, {"type": "object"}]}, {"string", "integer", "object"}),
        ({"allOf": [TEXT]}, {"string"}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": TEXT}}, {"string"}),
        ({"$ref": "#/definitions/a", "definitions": {"a": {"anyOf": [TEXT]}}}, {"string"}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, ANY),
        ({"anyOf": [{"$ref": "#/$defs/a"}, TEXT], "$defs": {"a": {"$ref": "#/$defs/a"}}}, ANY),
        ({"$ref": "#/$defs/none"}, ANY),
        ({"$ref": "elsewhere.json", "$defs": 5}, ANY),
        ({"type": 5}, ANY),
        ({}, ANY),
    ],
)
def test_types_that_a_schema_may_allow(schema: dict[str, Any], types: set[str]) -> None:
    assert types_of(schema) == types


def test_parameters_stand_alone() -> None:
    city, days = parameters_of(WEATHER)
    assert (city.name, city.is_required, types_of(city.schema)) == ("city", True, {"string"})
    assert (days.name, days.is_required) == ("days", False)
    assert "$defs" not in days.schema
    assert parameters_of(CLOCK) == parameters_of(Tool(name="f", parameters={"properties": [1]})) == []
    assert parameters_of(Tool(name="f", parameters={"properties": {"a": True}}))[0].schema == {}


def test_others_are_allowed_where_the_schema_says_so_or_names_none() -> None:
    assert not allows_others(CLOCK)
    assert not allows_others(WEATHER)
    assert allows_others(Tool(name="f", parameters={"type": "object"}))
    assert allows_others(Tool(name="f", parameters={"properties": {}, "additionalProperties": {}}))


@pytest.mark.parametrize(
    ("text", "schema", "written"),
    [
        ("5", TEXT, '"5"'),
        (" a\n", TEXT, '" a\\n"'),
        ("5", {"type": "integer"}, "5"),
        ("5", {"type": "number"}, "5"),
        ("5.0", {"type": "integer"}, '"5.0"'),
        ("many", {"type": "integer"}, '"many"'),
        ("True", {"type": "boolean"}, "true"),
        ("true", {"type": "boolean"}, "true"),
        ("None", {"type": ["string", "null"]}, "null"),
        ("5", {"type": ["string", "null"]}, '"5"'),
        ('{"a": [1, "é"]}', {"type": "object"}, '{"a": [1, "é"]}'),
        ("{'a': True}", {"type": "object"}, '{"a": true}'),
        ("[1", {"type": "array"}, '"[1"'),
        ("NaN", {"type": "number"}, '"NaN"'),
        ("1e999", {"type": "number"}, "1.7976931348623157e+308"),
        ("[" * 5000, {}, '"' + "[" * 5000 + '"'),
        ("5", {}, "5"),
        ("five", {}, '"five"'),
    ],
)
def test_values_of_xml_are_what_their_schema_allows(text: str, schema: dict[str, Any], written: str) -> None:
    assert json_of(text, schema) == written


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        ("'Rome', days=2", {"city": "Rome", "days": 2}),
        ("city='a', **{'max-days': 1}", {"city": "a", "max-days": 1}),
        ("a=True, b=false, c=None, d=null", {"a": True, "b": False, "c": None, "d": None}),
        ("a=[1, {'b': (2, -3.5)}]", {"a": [1, {"b": (2, -3.5)}]}),
        (r'a="\d\/\n\"\u00e9"', {"a": '\\d/\n"é'}),
    ],
)
def test_pythons_arguments(text: str, arguments: dict[str, Any]) -> None:
    assert arguments_in(text, WEATHER) == arguments


@pytest.mark.parametrize(
    "text", ["a=b", "a=f()", "1, 2, 3", "a=1) + g(2", "a", "*[1]", "**5", "a=" + "(" * 500 + ")" * 500, "a='\\x'"]
)
def test_what_are_no_arguments(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        arguments_in(text, WEATHER)


def test_calls_are_written_as_they_are_read() -> None:
    for arguments in ({"city": 'Rome "\n', "days": None}, {"max-days": True, "class": [1.5, {"a": "}"}]}, {}):
        text = f"[{written_in_python('get_weather', arguments)}]"
        parser = FORMATS["gemma"].parser([WEATHER])
        assert joined(parser.push(text) + parser.finish()) == ("", [("get_weather", arguments)])


@pytest.mark.parametrize("length", ["1}/\nstart: /", -1, 1.5])
def test_a_length_that_is_none_is_refused(length: Any) -> None:
    tool_format: ToolFormat = FORMATS["qwen3-coder"]
    tool = Tool(name="f", parameters={"properties": {"a": {"type": "string", "maxLength": length}}})
    with pytest.raises(InvalidRequest, match="maxLength"):
        tool_format.grammar([tool], must_call=True)
