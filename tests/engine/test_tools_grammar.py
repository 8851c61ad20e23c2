"""Forced calls fit their schemas in every notation, and are read back; announced ones are held to the same."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import EngineError, InvalidRequest
from engine.grammar import GrammarCompiler, Matcher
from engine.tools.format import ToolFormat
from engine.tools.types import Tool
from engine.types import Grammar
from tests.engine.grammars import COLUMNS, Bytes, allowed, wander, write
from tests.engine.tool_notations import CALL, CLOCK, FORMATS, NOW, TOOLS, WEATHER, XML_CALL, joined
from tests.engine.toy_runner import EOS

COMPILER = GrammarCompiler(Bytes(), COLUMNS)


def matcher(grammar: Grammar | None) -> Matcher:
    assert grammar is not None
    return COMPILER.compile(grammar)


def accepts(held: Matcher, text: str) -> bool:
    try:
        write(held, text)
    except EngineError:
        return False
    return held.is_complete


def read(tool_format: ToolFormat, tools: list[Tool], text: str) -> list[tuple[str, Any]]:
    parser = tool_format.parser(tools)
    said, calls = joined(parser.push(text) + parser.finish())
    assert said == ""
    return calls


@pytest.mark.parametrize("tool_format", FORMATS.values(), ids=FORMATS)
@settings(max_examples=15, deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_forced_answers_are_calls_that_fit(tool_format: ToolFormat, random: Any) -> None:
    text = wander(matcher(tool_format.grammar(TOOLS, must_call=True)), random.choice)
    if text is None:
        return
    calls = read(tool_format, TOOLS, text.decode())
    assert calls
    for name, arguments in calls:
        tool = {tool.name: tool for tool in TOOLS}[name]
        jsonschema.validate(arguments, (tool.parameters or {"maxProperties": 0}))
        assert arguments.keys() <= {"city", "days"}


RICH = Tool(
    name="rich",
    parameters={
        "type": "object",
        "properties": {
            "kind": {"enum": ["a/b", "c d", 3]},
            "code": {"type": "string", "pattern": "^[a-c]{2}/x$"},
            "note": {"type": "string", "minLength": 1, "maxLength": 3},
            "maybe": {"anyOf": [{"$ref": "#/$defs/size"}, {"type": "null"}]},
            "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
            "far": {"type": "object", "properties": {"x": {"type": "number"}}, "additionalProperties": False},
        },
        "required": ["code"],
        "additionalProperties": False,
        "$defs": {"size": {"type": "integer", "minimum": 0, "maximum": 99}},
    },
)
NONE_REQUIRED = Tool(
    name="free", parameters={"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}}
)
OPEN = Tool(name="open", parameters={"type": "object"})
ODD_NAMES = Tool(name="odd-1", parameters={"type": "object", "properties": {"max-days": {"const": 1}, "class": {}}})


@pytest.mark.parametrize("name", ["qwen3-coder", "gemma", "mistral-v13"])
@pytest.mark.parametrize("tool", [RICH, NONE_REQUIRED, OPEN, ODD_NAMES], ids=lambda tool: str(tool.name))
@settings(max_examples=15, deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_every_kind_of_schema_is_held_to(name: str, tool: Tool, random: Any) -> None:
    text = wander(matcher(FORMATS[name].grammar([tool], must_call=True, most=1)), random.choice, max_tokens=600)
    if text is None:
        return
    ((called, arguments),) = read(FORMATS[name], [tool], text.decode())
    assert called == tool.name
    assert tool.parameters is not None
    jsonschema.validate(arguments, tool.parameters)


def test_parameters_of_xml_are_held_to_their_schemas() -> None:
    grammar = FORMATS["qwen3-coder"].grammar([RICH], must_call=True)
    call = "<tool_call>\n<function=rich>\n{}</function>\n</tool_call>"
    code = "<parameter=code>\nab/x\n</parameter>\n"
    assert accepts(matcher(grammar), call.format(code))
    assert accepts(matcher(grammar), call.format(f"<parameter=kind>\na/b\n</parameter>\n{code}"))
    assert accepts(matcher(grammar), call.format(f"{code}<parameter=maybe>\n12\n</parameter>\n"))
    assert accepts(matcher(grammar), call.format(f"{code}<parameter=flags>\n[true, false]\n</parameter>\n"))
    for wrong in ("", code + code, code.replace("ab/x", "abc"), f"{code}<parameter=note>\nlong\n</parameter>\n"):
        assert not accepts(matcher(grammar), call.format(wrong))


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("^a+$", ["a", "aa"], ["", "ab"]),
        ("b", ["b", "a\nb c"], ["", "ac"]),
        ("^a", ["a", "ab"], ["ba"]),
        ("^$", [""], ["a"]),
        ("a/b$", ["a/b", "x a/b"], ["a/bc"]),
        (r"^\d\/\$$", ["1/$"], ["1/"]),
        ("^(a\nb|[/])$", ["a\nb", "/"], ["ab"]),
    ],
)
def test_patterns_of_xml_are_searched_for(pattern: str, fitting: list[str], others: list[str]) -> None:
    schema = {"type": "string", "pattern": pattern}
    tool = Tool(name="f", parameters={"properties": {"a": schema}, "required": ["a"]})
    grammar = FORMATS["qwen3-coder"].grammar([tool], must_call=True, most=1)
    answer = "<tool_call>\n<function=f>\n<parameter=a>\n{}\n</parameter>\n</function>\n</tool_call>"
    assert [accepts(matcher(grammar), answer.format(text)) for text in fitting] == [True] * len(fitting)
    assert [accepts(matcher(grammar), answer.format(text)) for text in others] == [False] * len(others)


@pytest.mark.parametrize("pattern", ["a)|(b", "(", "*", "a\\", "(?=a)", "x?" * 3000, "(a{100}){1000}"])
def test_patterns_of_xml_that_are_none_or_too_much_are_refused(pattern: str) -> None:
    tool = Tool(name="f", parameters={"properties": {"a": {"type": "string", "pattern": pattern}}})
    with pytest.raises(InvalidRequest):
        matcher(FORMATS["qwen3-coder"].grammar([tool], must_call=True))


@pytest.mark.parametrize("name", ["qwen3-coder", "gemma"])
def test_long_lists_of_values_and_of_optional_parameters_are_served(name: str) -> None:
    listed = {"enum": [f"w/{place}" for place in range(1500)]}
    optional = {f"p{place}": {"type": "boolean"} for place in range(60)}
    tool = Tool(name="f", parameters={"properties": {"a": listed, **optional}})
    held = matcher(FORMATS[name].grammar([tool], must_call=True))
    lead = "<tool_call>\n<function=f>\n<parameter=a>\n" if name == "qwen3-coder" else '[f(a="'
    write(held, lead + "w/1234")
    assert not held.error


def test_a_text_in_xml_may_be_anything_up_to_its_end() -> None:
    tool = Tool(name="save", parameters={"properties": {"text": {"type": "string"}}, "required": ["text"]})
    text = '<a href="x">\n\n</a> "quoted" \\ {}\n  '
    answer = f"<tool_call>\n<function=save>\n<parameter=text>\n{text}\n</parameter>\n</function>\n</tool_call>"
    assert accepts(matcher(FORMATS["qwen3-coder"].grammar([tool], must_call=True)), answer)
    assert read(FORMATS["qwen3-coder"], [tool], answer) == [("save", {"text": text})]


def test_many_tools_with_many_parameters_are_served() -> None:
    parameters = {"properties": {f"p{place}": {"type": ["string", "integer"][place % 2]} for place in range(8)}}
    tools = [Tool(name=f"tool_{place}", parameters=parameters | {"required": ["p2"]}) for place in range(100)]
    few = {"properties": {f"p{place}": {"type": "integer"} for place in range(4)}}
    more = [Tool(name=f"tool_{place}", parameters=few) for place in range(128)]
    for tool_format in FORMATS.values():
        assert not matcher(tool_format.grammar(tools, must_call=True)).error
        assert not matcher(tool_format.grammar(more, must_call=True)).error


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "gemma"])
def test_a_schema_that_nothing_satisfies_is_refused(name: str) -> None:
    tool = Tool(
        name="f", parameters={"properties": {"a": {"type": "integer", "minimum": 2, "maximum": 1}}, "required": ["a"]}
    )
    with pytest.raises(InvalidRequest, match="can't be used"):
        matcher(FORMATS[name].grammar([tool], must_call=True))


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("hermes", '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'),
        ("qwen3-coder", "<tool_call>\n<function=clock>\n</function>\n</tool_call>"),
        ("mistral", '[TOOL_CALLS][{"name": "clock", "arguments": {}}]'),
        ("mistral-v11", "[TOOL_CALLS]clock[CALL_ID]a1B2c3D4e[ARGS]{}"),
        ("mistral-v13", "[TOOL_CALLS]clock[ARGS]{}"),
        ("llama3", '{"name": "clock", "parameters": {}}'),
        ("phi4-mini", 'functools[{"name": "clock", "arguments": {}}]'),
        ("gemma", "[clock()]"),
    ],
)
def test_one_call_is_forced_to_be_one(name: str, one: str) -> None:
    held = matcher(FORMATS[name].grammar([CLOCK], must_call=True, most=1))
    write(held, one)
    assert allowed(held) == [EOS]
    assert read(FORMATS[name], TOOLS, one) == [NOW]


@pytest.mark.parametrize(
    ("name", "two"),
    [
        ("hermes", f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call>"),
        ("qwen3-coder", f"{XML_CALL}\n{XML_CALL}"),
        ("mistral", f"[TOOL_CALLS][{CALL}, {CALL}]"),
        ("mistral-v13", '[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}'),
        ("gemma", '[get_weather(city="Rome"), get_weather(city="Rome", days=2)]'),
    ],
)
def test_several_calls_may_be_forced(name: str, two: str) -> None:
    assert accepts(matcher(FORMATS[name].grammar([WEATHER], must_call=True)), two)
    assert not accepts(matcher(FORMATS[name].grammar([WEATHER], must_call=True, most=1)), two)
    assert len(read(FORMATS[name], TOOLS, two)) == 2


def test_a_free_model_is_held_to_nothing() -> None:
    assert FORMATS["hermes"].grammar(TOOLS, must_call=False) is None


STRICT = Tool(
    name="f", parameters={"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}, strict=True
)


@pytest.mark.parametrize(
    ("name", "lead", "end"),
    [
        ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": ', "}}\n</tool_call>"),
        ("qwen3-coder", "<tool_call>\n<function=f>\n<parameter=a>\n", "\n</parameter>\n</function>\n</tool_call>"),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"a": ', "}}]"),
        ("mistral-v13", '[TOOL_CALLS]f[ARGS]{"a": ', "}"),
        ("phi4-mini", 'functools[{"name": "f", "arguments": {"a": ', "}}]"),
    ],
)
def test_a_strict_tools_calls_fit_once_announced(name: str, lead: str, end: str) -> None:
    grammar = FORMATS[name].grammar([STRICT], must_call=False)
    free = matcher(grammar)
    write(free, "No call <tool at all, functool [TOOL_")
    assert free.is_complete
    held = matcher(grammar)
    write(held, "Well. " + lead)
    assert allowed(held) == [ord("1")]
    write(held, "1" + end)
    assert held.is_complete
    assert ord("x") in allowed(held)


@pytest.mark.parametrize("name", ["llama3", "gemma"])
def test_where_nothing_announces_calls_a_free_model_stays_free(name: str) -> None:
    assert FORMATS[name].grammar([STRICT], must_call=False) is None


def test_at_most_one_call_where_no_more_are_wanted() -> None:
    held = matcher(FORMATS["hermes"].grammar([CLOCK], must_call=False, most=1))
    write(held, 'Well. <tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>')
    assert allowed(held) == [EOS]
