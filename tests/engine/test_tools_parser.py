"""Answers in each family's notation, in any pieces; and text that only looks like a call."""

import re
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.tools.types import Arguments, CallBegins, Text
from tests.engine.tool_notations import CALL, FORMATS, NOW, ROME, TOOLS, XML_CALL, joined, parse, written


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
        ("hermes", '<tool_call>{"arguments": {"a": "\\ud800"}, "name": "clock"}', "", [("clock", {"a": "\ud800"})]),
        ("qwen3-coder", XML_CALL, "", [ROME]),
        ("qwen3-coder", f"I look.\n\n{XML_CALL}\n{XML_CALL}", "I look.\n\n", [ROME, ROME]),
        ("qwen3-coder", XML_CALL.removeprefix("<tool_call>\n"), "", [ROME]),  # these models forget it at times
        ("qwen3-coder", "<tool_call>\n<function=clock>\n</function>\n</tool_call>", "", [NOW]),
        ("qwen3-coder", f"<tool_call>\n{CALL}\n</tool_call>", "", [ROME]),
        ("mistral", f"[TOOL_CALLS] [{CALL}]", "", [ROME]),
        ("mistral", f"[TOOL_CALLS][{CALL}, {CALL}]", "", [ROME, ROME]),
        ("mistral", f"[{CALL}, {CALL}]", "", [ROME, ROME]),
        ("mistral", f"[TOOL_CALLS][{CALL}] [1] see", "[1] see", [ROME]),
        ("mistral-v11", '[TOOL_CALLS]clock[CALL_ID]a1B2c3D4e[ARGS]{"a": "}"}', "", [("clock", {"a": "}"})]),
        ("mistral-v13", 'I look.[TOOL_CALLS]clock[ARGS]{"a": 1} ', "I look.", [("clock", {"a": 1})]),
        (
            "mistral-v13",
            '[TOOL_CALLS]get_weather[ARGS]{"city": "Rome", "days": 2}[TOOL_CALLS]clock[ARGS]{}',
            "",
            [ROME, NOW],
        ),
        ("mistral-v13", "[TOOL_CALLS]clock{}", "", [NOW]),
        ("mistral-v13", f"[TOOL_CALLS][{CALL}]", "", [ROME]),
        ("llama3", CALL.replace("arguments", "parameters"), "", [ROME]),
        ("llama3", "<|python_tag|>" + CALL.replace("arguments", "parameters"), "", [ROME]),
        ("llama3", f"{CALL}; {CALL}", "", [ROME]),  # the family knows one call an answer
        ("llama3", "[get_weather(city='Rome', days=2)]", "", [ROME]),
        ("llama3", f"{CALL} clock() says.", "clock() says.", [ROME]),
        ("phi4-mini", f"functools[{CALL}]", "", [ROME]),
        ("phi4-mini", f"<|tool_call|>[{CALL}]<|/tool_call|>", "", [ROME]),
        ("gemma", '[get_weather(city="Rome", days=2), clock()]', "", [ROME, NOW]),
        ("gemma", 'Sure:\n```tool_code\nget_weather("Rome", 2)\nclock()\n```\nDone.', "Sure:\n\nDone.", [ROME, NOW]),
        ("gemma", "```tool_code\n[clock()]\n```", "", [NOW]),
        ("gemma", "[clock(a=[-1e999, true])]", "", [("clock", {"a": [-sys.float_info.max, True]})]),
        ("gemma", f"```json\n{CALL}\n```", "", [ROME]),
        ("gemma", CALL.replace("arguments", "parameters"), "", [ROME]),
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
        ("hermes", '<tool_call>{"arguments": {"a": NaN}, "name": "clock"}</tool_call>'),
        ("hermes", '<tool_call>{"name": ["clock"], "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"arguments": {}, "name": {"name": "clock"}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "clock", "arg'),
        ("hermes", CALL),  # nothing announces it
        ("hermes", "\n<tool_call></tool_call>"),
        ("qwen3-coder", "<tool_call>\n<function=nobody>\n</function>\n</tool_call>"),
        ("qwen3-coder", "<function=clock"),
        ("qwen3-coder", "a <function> of x, <function=\n"),
        ("mistral", '[{"city": "Rome"}]'),
        ("mistral", "[1, 2]"),
        ("mistral", "["),
        ("mistral", "[TOOL_CALLS] none"),
        ("mistral-v13", "[TOOL_CALLS]nobody[ARGS]{}"),
        ("mistral-v13", "[TOOL_CALLS]clock[ARGS]none"),
        ("mistral-v13", "[TOOL_CALLS]clock[ARGS] x {}"),
        ("mistral-v13", "clock[ARGS]{}"),
        ("llama3", '{"city": "Rome"}'),
        ("llama3", '{"name": "Rome", "arguments": {}}'),
        ("llama3", '{"name": '),
        ("llama3", "{}"),
        ("llama3", f"It is {CALL}"),
        ("llama3", "clock() tells the time."),
        ("phi4-mini", "functools is a module."),
        ("gemma", "[clock(is a] function)]"),
        ("gemma", "[clock(a=now)]"),
        ("gemma", "[clock(a={1, 2})]"),
        ("gemma", "[clock(5)]"),
        ("gemma", "[clock('"),
        ("gemma", "  [clock]"),
        ("gemma", "```tool_code\nprint(5)\n```"),
        ("gemma", '```json\n{"a": 1}\n```'),
    ],
)
def test_what_only_looks_like_a_call_is_text(name: str, text: str) -> None:
    assert joined(parse(name, text)) == (text, [])
    assert joined(parse(name, text, list(range(len(text))))) == (text, [])


_parts = st.sampled_from(
    ["<tool_call>", "\n", " ", "</tool_call>", CALL, '{"name": "clock", "arguments": {}}', "text", "[", "]", ",", ";",
     "{", "}", '"', '{"name": "nobody", "arguments": {}}', "<tool", "functools", "[TOOL_CALLS]", '{"a": 1}', "<|python",
     "<function=clock>", "<function=nobody>", "<parameter=city>", "</parameter>", "</function>", "<", "clock", "clock(",
     ")", "a=1", "[ARGS]", "[CALL_ID]", "```", "```tool_code", "get_weather('", "'", "\\"]
)  # fmt: skip


@settings(max_examples=800, deadline=None)
@given(st.sampled_from(sorted(FORMATS)), st.lists(_parts, max_size=9).map("".join), st.lists(st.integers(0, 400)))
def test_it_does_not_matter_where_a_stream_is_cut(name: str, text: str, cuts: list[int]) -> None:
    cut = written(parse(name, text, cuts))
    assert cut == written(parse(name, text))
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


def test_a_text_in_xml_comes_as_it_is_written() -> None:
    parser = FORMATS["qwen3-coder"].parser(TOOLS)
    begins, first = parser.push("<tool_call>\n<function=get_weather>\n<parameter=city>\n")
    assert isinstance(begins, CallBegins)
    assert first == Arguments(0, '{"city": ')
    pieces = parser.push("A long text, with a line end\nand a </param of its own")
    assert written([begins, *pieces])[1][0][1].startswith('"A long text, with a line end\\n')
    rest = parser.push("\n</parameter>\n</function>\n</tool_call>") + parser.finish()
    whole = joined([begins, first, *pieces, *rest])
    assert whole == ("", [("get_weather", {"city": "A long text, with a line end\nand a </param of its own"})])


@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        ("hermes", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Ro', '{"city": "Ro'),
        ("qwen3-coder", "<function=get_weather>\n<parameter=city>\nRo", '{"city": "Ro'),
        ("qwen3-coder", "<function=get_weather>\n<parameter=days>\n2", '{"days": 2'),
        ("mistral-v13", '[TOOL_CALLS]get_weather[ARGS]{"city": "Ro', '{"city": "Ro'),
    ],
)
def test_a_call_that_was_cut_off_stays_as_it_is(name: str, text: str, arguments: str) -> None:
    assert written(parse(name, text)) == ("", [("get_weather", arguments)])


@pytest.mark.parametrize(
    ("name", "text", "is_cut_off"),
    [
        ("hermes", "No call at all {", False),
        ("hermes", f"<tool_call>{CALL}", False),
        ("hermes", f"<tool_call>{CALL[:-1]}", False),  # all of the arguments is there
        ("hermes", f"<tool_call>{CALL[:-2]}", True),
        ("hermes", f"<tool_call>{CALL}</tool_call><tool_call>{CALL[:-3]}", True),
        ("hermes", f"<tool_call>{CALL}</tool_call><tool_call>", False),
        ("qwen3-coder", "<function=get_weather>\n<parameter=city>\nRo", True),
        ("mistral-v13", "[TOOL_CALLS]get_weather[ARGS]{", True),
        ("mistral-v13", "[TOOL_CALLS]get_weather[ARGS]{}", False),
    ],
)
def test_it_knows_whether_the_last_call_was_cut_off(name: str, text: str, is_cut_off: bool) -> None:
    for cut in range(len(text)):
        parser = FORMATS[name].parser(TOOLS)
        for piece in (text[:cut], text[cut:]):
            parser.push(piece)
        parser.finish()
        assert parser.is_cut_off is is_cut_off


def test_a_call_beyond_the_most_may_be_cut_off() -> None:
    parser = FORMATS["hermes"].parser(TOOLS, 1)
    parser.push(f"<tool_call>{CALL}</tool_call><tool_call>{CALL[:-3]}")
    parser.finish()
    assert not parser.is_cut_off


@pytest.mark.parametrize("begun", ["\n<tool_", "\n<tool_call>", '\n<tool_call>\n{"name": "get_', "\n"])
def test_another_call_that_was_only_announced_is_dropped(begun: str) -> None:
    assert joined(parse("hermes", f"<tool_call>\n{CALL}\n</tool_call>{begun}")) == ("", [ROME])
    said = f"<tool_call>\n{CALL}\n</tool_call> So it is <"
    assert joined(parse("hermes", said)) == (" So it is <", [ROME])


@pytest.mark.parametrize(
    ("name", "call"), [("hermes", f"<tool_call>{CALL}</tool_call>"), ("qwen3-coder", XML_CALL + "\n")]
)
def test_calls_beyond_the_most_are_dropped(name: str, call: str) -> None:
    assert joined(parse(name, call * 3, most=1)) == ("", [ROME])
    assert joined(parse(name, call * 3, list(range(500)), most=2)) == ("", [ROME, ROME])


def test_what_is_no_parameter_ends_an_xml_call_and_is_text() -> None:
    text = "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\nAnd so on."
    assert joined(parse("qwen3-coder", text)) == ("And so on.", [("get_weather", {"city": "Rome"})])


@pytest.mark.parametrize("name", ["mistral", "mistral-v11", "mistral-v13"])
def test_mistrals_ids_are_what_its_templates_take(name: str) -> None:
    begins = parse(name, f"[TOOL_CALLS][{CALL}]")[0]
    assert isinstance(begins, CallBegins)
    assert re.fullmatch("[a-zA-Z0-9]{9}", begins.id)
