"""Calls in each family's notation: told of, forced, parsed in any pieces; and text that only looks like a call."""

import itertools
import json
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.grammar import GrammarCompiler, Matcher
from engine.tools.format import ToolFormat, format_for
from engine.tools.types import Arguments, CallBegins, Piece, Text, Tool
from engine.types import Grammar
from tests.engine.test_grammar import COLUMNS, Bytes, allowed, wander, write
from tests.engine.toy_runner import EOS

WEATHER = Tool(
    name="get_weather",
    description="The weather now.",
    parameters={
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city"],
        "$defs": {"city": {"type": "string", "maxLength": 8}},
    },
)
CLOCK = Tool(name="clock")
TOOLS = [WEATHER, CLOCK]

TEMPLATES = {
    "hermes": "{% if tools %}<tool_call>{% endif %}",
    "mistral": "{% if tools %}[TOOL_CALLS]{% endif %}",
    "llama3": "{% if tools %}<|python_tag|>{% endif %}",
    "phi4-mini": "{% if 'tools' in message %}<|tool|>{% endif %}",
    "described": "{{ messages }}",
}
FORMATS = {name: format_for(source) for name, source in TEMPLATES.items()}

CALL = '{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}'
ROME = ("get_weather", {"city": "Rome", "days": 2})
NOW = ("clock", {})


def parse(name: str, text: str, cuts: list[int] | None = None, most: int | None = None) -> list[Piece]:
    parser = FORMATS[name].parser(TOOLS, most)
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts or ())})
    pieces = [piece for begin, end in itertools.pairwise(places) for piece in parser.push(text[begin:end])]
    return pieces + parser.finish()


def joined(pieces: list[Piece]) -> tuple[str, list[tuple[str, Any]]]:
    """The text, and the calls with their arguments."""
    text = "".join(piece.text for piece in pieces if isinstance(piece, Text))
    names = [piece.name for piece in pieces if isinstance(piece, CallBegins)]
    arguments = ["" for _ in names]
    for piece in pieces:
        if isinstance(piece, Arguments):
            arguments[piece.index] += piece.text
    return text, list(zip(names, map(json.loads, arguments), strict=True))


def test_a_template_says_what_its_model_speaks() -> None:
    assert {name: tool_format.name for name, tool_format in FORMATS.items()} == {name: name for name in TEMPLATES}
    # Qwen3-Coder's XML, newer Mistrals' [ARGS] and others' notations are not here.
    for source in ("{{ tools }}<tool_call><function=x>", "{{ tools }}[TOOL_CALLS][ARGS]", "{{ tools }}<|tool|>"):
        assert format_for(source).name == "described"


@pytest.mark.parametrize(
    ("name", "text", "said", "calls"),
    [
        ("hermes", f"<tool_call>\n{CALL}\n</tool_call>", "", [ROME]),
        ("hermes", f"Let me see.\n<tool_call>{CALL}</tool_call>", "Let me see.\n", [ROME]),
        ("hermes", f"\n\n<tool_call>\n{CALL}\n</tool_call>\n", "", [ROME]),
        (
            "hermes",
            f'<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{{"name": "clock", "arguments": {{}}}}\n</tool_call>',
            "",
            [ROME, NOW],
        ),
        ("hermes", f"<tool_call>[{CALL}, {CALL}]</tool_call> Done.", " Done.", [ROME, ROME]),
        ("hermes", '<tool_call>{"arguments": {}, "name": "clock"}</tool_call>', "", [NOW]),
        ("hermes", '<tool_call>{"name": "clock", "arguments": "{}"}</tool_call>', "", [NOW]),
        ("hermes", '<tool_call>{"type": "function", "function": {"name": "clock", "parameters": {}}}', "", [NOW]),
        ("hermes", '<tool_call>{ "name" : "clock" ,\n"arguments" : { } , "x": [1]}\n</tool_call>', "", [NOW]),
        ("hermes", '<tool_call>{"name": "clock", "arguments": {"a":\n"b\n\\"\tc"}}', "", [("clock", {"a": 'b\n"\tc'})]),
        ("hermes", '<tool_call>{"arguments": {"a": "b\nc"}, "name": "clock"}', "", [("clock", {"a": "b\nc"})]),
        ("mistral", f"[TOOL_CALLS] [{CALL}]", "", [ROME]),
        ("mistral", f"[{CALL}, {CALL}]", "", [ROME, ROME]),
        ("llama3", CALL.replace("arguments", "parameters"), "", [ROME]),
        ("llama3", "<|python_tag|>" + CALL.replace("arguments", "parameters"), "", [ROME]),
        ("llama3", f"{CALL}; {CALL}", "", [ROME]),  # the family knows one call an answer
        ("phi4-mini", f"functools[{CALL}]", "", [ROME]),
        ("phi4-mini", f"<|tool_call|>[{CALL}]<|/tool_call|>", "", [ROME]),
        ("described", f"<tool_call>\n{CALL}\n</tool_call>", "", [ROME]),
    ],
)
def test_calls_are_found(name: str, text: str, said: str, calls: list[Any]) -> None:
    assert joined(parse(name, text)) == (said, calls)
    one_by_one = parse(name, text, list(range(len(text))))
    assert joined(one_by_one) == (said, calls)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "Rome is warm."),
        ("hermes", "  \n"),
        ("hermes", ""),
        ("hermes", "a < b, <tool, <tool_"),
        ("hermes", "<tool_call>"),
        ("hermes", "<tool_call>\n"),
        ("hermes", "<tool_call> is how calls begin, </tool_call> how they end."),
        ("hermes", '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "clock"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "clock", "arguments": 5}</tool_call>'),
        ("hermes", '<tool_call>{"name": ["clock"], "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"arguments": {}, "name": {"name": "clock"}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "clock", "arg'),
        ("hermes", CALL),  # nothing announces it
        ("hermes", "\n<tool_call></tool_call>"),
        ("mistral", '[{"city": "Rome"}]'),
        ("mistral", "[1, 2]"),
        ("mistral", "["),
        ("mistral", "[TOOL_CALLS] none"),
        ("llama3", '{"city": "Rome"}'),
        ("llama3", '{"name": "Rome", "arguments": {}}'),
        ("llama3", '{"name": '),
        ("llama3", "{}"),
        ("llama3", f"It is {CALL}"),
        ("phi4-mini", "functools is a module."),
    ],
)
def test_what_only_looks_like_a_call_is_text(name: str, text: str) -> None:
    assert joined(parse(name, text)) == (text, [])
    assert joined(parse(name, text, list(range(len(text))))) == (text, [])


_parts = st.sampled_from(
    ["<tool_call>", "\n", " ", "</tool_call>", CALL, '{"name": "clock", "arguments": {}}', "text", "[", "]", ",", ";",
     "{", "}", '"', '{"name": "nobody", "arguments": {}}', "<tool", "functools", "[TOOL_CALLS]", '{"a": 1}', "<|python"]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(FORMATS)), st.lists(_parts, max_size=8).map("".join), st.lists(st.integers(0, 400)))
def test_it_does_not_matter_where_a_stream_is_cut(name: str, text: str, cuts: list[int]) -> None:
    def whole(pieces: list[Piece]) -> list[Any]:
        text, names, arguments = "", [], {}
        for piece in pieces:
            if isinstance(piece, Text):
                text += piece.text
            elif isinstance(piece, CallBegins):
                names.append(piece.name)
            else:
                arguments[piece.index] = arguments.get(piece.index, "") + piece.text
        return [text, names, arguments]

    cut = whole(parse(name, text, cuts))
    assert cut == whole(parse(name, text))
    if not cut[1]:
        assert cut[0] == text


def test_arguments_come_as_they_are_written() -> None:
    parser = FORMATS["hermes"].parser(TOOLS)
    assert parser.push('Yes.<tool_call>\n{"name": "get_weather", "arguments": ') == [Text("Yes.")]
    begins, first = parser.push('{"ci')
    assert isinstance(begins, CallBegins)
    assert (begins.index, begins.name) == (0, "get_weather")
    assert re.fullmatch("call_[0-9a-f]{24}", begins.id)
    assert first == Arguments(0, '{"ci')
    assert parser.push('ty": "}\\"') == [Arguments(0, 'ty": "}\\"')]
    assert parser.push('"}}\n</tool_call>') == [Arguments(0, '"}')]
    assert parser.finish() == []


def test_a_call_that_was_cut_off_stays_as_it_is() -> None:
    pieces = parse("hermes", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Ro')
    assert pieces[1:] == [Arguments(0, '{"city": "Ro')]
    assert isinstance(pieces[0], CallBegins)


@pytest.mark.parametrize("begun", ["\n<tool_", "\n<tool_call>", '\n<tool_call>\n{"name": "get_', "\n"])
def test_another_call_that_was_only_announced_is_dropped(begun: str) -> None:
    assert joined(parse("hermes", f"<tool_call>\n{CALL}\n</tool_call>{begun}")) == ("", [ROME])
    said = f"<tool_call>\n{CALL}\n</tool_call> So it is <"
    assert joined(parse("hermes", said)) == (" So it is <", [ROME])


def test_calls_beyond_the_most_are_dropped() -> None:
    text = f"<tool_call>{CALL}</tool_call>" * 3
    assert joined(parse("hermes", text, most=1)) == ("", [ROME])
    assert joined(parse("hermes", text, list(range(200)), most=2)) == ("", [ROME, ROME])


def test_mistrals_ids_are_what_its_templates_take() -> None:
    begins = parse("mistral", f"[{CALL}]")[0]
    assert isinstance(begins, CallBegins)
    assert re.fullmatch("[a-zA-Z0-9]{9}", begins.id)


COMPILER = GrammarCompiler(Bytes(), COLUMNS)


def matcher(grammar: Grammar | None) -> Matcher:
    assert grammar is not None
    return COMPILER.compile(grammar)


@pytest.mark.parametrize("tool_format", FORMATS.values(), ids=FORMATS)
@settings(max_examples=15, deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_forced_answers_are_calls_that_fit(tool_format: ToolFormat, random: Any) -> None:
    text = wander(matcher(tool_format.grammar(TOOLS, must_call=True)), random.choice)
    if text is None:
        return
    parser = tool_format.parser(TOOLS)
    said, calls = joined(parser.push(text.decode()) + parser.finish())
    assert said == ""
    assert calls
    for name, arguments in calls:
        tool = {tool.name: tool for tool in TOOLS}[name]
        jsonschema.validate(arguments, (tool.parameters or {"maxProperties": 0}))
        assert arguments.keys() <= {"city", "days"}


def test_one_call_is_forced_to_be_one() -> None:
    held = matcher(FORMATS["hermes"].grammar([CLOCK], must_call=True, most=1))
    write(held, '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>')
    assert allowed(held) == [EOS]


def test_a_free_model_is_held_to_nothing() -> None:
    assert FORMATS["hermes"].grammar(TOOLS, must_call=False) is None


@pytest.mark.parametrize("name", ["hermes", "phi4-mini"])
def test_a_strict_tools_calls_fit_once_announced(name: str) -> None:
    strict = Tool(
        name="f", parameters={"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}, strict=True
    )
    syntax = FORMATS[name].syntax
    grammar = FORMATS[name].grammar([strict], must_call=False)
    free = matcher(grammar)
    write(free, "No call <tool at all, functool")
    assert free.is_complete
    held = matcher(grammar)
    lead = (syntax.begin + syntax.opening) + '{"name": "f", "arguments": {"a": '
    write(held, "Well. " + lead)
    assert allowed(held) == [ord("1")]
    write(held, "1}}" + syntax.closing + syntax.end)
    assert held.is_complete
    assert ord("x") in allowed(held)


def test_at_most_one_call_where_no_more_are_wanted() -> None:
    held = matcher(FORMATS["hermes"].grammar([CLOCK], must_call=False, most=1))
    write(held, 'Well. <tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>')
    assert allowed(held) == [EOS]


HISTORY = [
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}},
            {"id": "call_2", "type": "function", "function": {"name": "clock", "arguments": ""}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "warm"},
    {"role": "tool", "tool_call_id": "call_2", "content": "noon"},
]


def test_templates_get_arguments_as_objects() -> None:
    messages, tools = FORMATS["hermes"].prepare(HISTORY, [WEATHER.described()])
    assert messages[1]["content"] == ""
    assert [call["function"]["arguments"] for call in messages[1]["tool_calls"]] == [{"city": "Rome"}, {}]
    assert tools == [WEATHER.described()]
    assert isinstance(HISTORY[1]["tool_calls"][0]["function"]["arguments"], str)  # the caller's are left alone


def test_mistral_gets_ids_that_it_takes() -> None:
    messages, _ = FORMATS["mistral"].prepare(HISTORY, None)
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", each) for each in ids)
    assert [message["tool_call_id"] for message in messages[2:]] == ids


def test_a_template_without_tools_is_told_in_words() -> None:
    messages, tools = FORMATS["described"].prepare(
        [{"role": "system", "content": "Be brief."}, *HISTORY], [CLOCK.described()]
    )
    assert tools is None
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[0]["content"].startswith("Be brief.\n\n")
    assert json.dumps(CLOCK.described()) in messages[0]["content"]
    assert joined(parse("described", messages[2]["content"])) == ("", [("get_weather", {"city": "Rome"}), NOW])
    assert messages[3]["content"].count("<tool_response>") == 2


def test_a_template_without_a_system_role_gets_them_with_the_first_message() -> None:
    without = format_for("{{ raise_exception('System role not supported') }}")
    messages, _ = without.prepare(HISTORY[:1], [CLOCK.described()])
    assert [message["role"] for message in messages] == ["user"]
    assert messages[0]["content"].endswith("\n\nWeather?")


def test_phi_reads_functions_from_the_system_message() -> None:
    messages, tools = FORMATS["phi4-mini"].prepare(HISTORY, [CLOCK.described()])
    assert tools is None
    assert messages[0]["role"] == "system"
    assert json.loads(messages[0]["tools"])[0]["name"] == "clock"
    assert joined(parse("phi4-mini", messages[2]["content"]))[1] == [("get_weather", {"city": "Rome"}), NOW]
