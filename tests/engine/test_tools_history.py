"""Which format a template means, and conversations with calls in the shape that it expects."""

import json
import re
from typing import Any

import pytest

from engine.tools.format import format_for
from tests.engine.tool_notations import CLOCK, FORMATS, NOW, TEMPLATES, WEATHER, joined, parse


def call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "Be brief."}
HISTORY = [
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [call("call_1", "get_weather", '{"city": "Rome"}'), call("call_2", "clock", "")],
    },
    {"role": "tool", "tool_call_id": "call_2", "content": "noon"},
    {"role": "tool", "tool_call_id": "call_1", "content": "warm"},
]
CALLS = [("get_weather", {"city": "Rome"}), NOW]
THANKS = {"role": "user", "content": "Thanks"}


def test_a_template_says_what_its_model_speaks() -> None:
    assert {name: tool_format.name for name, tool_format in FORMATS.items()} == {name: name for name in TEMPLATES}


@pytest.mark.parametrize(
    "source",
    [
        "{{ tools }}<|tool|>",
        "{{ tools }}<tool_call>{function-name}<arg_key>",
        "{{ tools }}<|python_tag|><function=name>{}</function>",
        "{{ tools }}<seed:tool_call><function=f><parameter=p>",
        "{{ tools }}<|tool_calls_section_begin|>",
    ],
    ids=["granite", "glm", "functionary", "seed", "kimi"],
)
def test_notations_that_are_not_known_here_are_left_to_words(source: str) -> None:
    assert format_for(source).name == "described"


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "llama3", "mistral-v13"])
def test_templates_get_arguments_as_objects(name: str) -> None:
    messages, tools = FORMATS[name].prepare(HISTORY, [WEATHER.described()])
    calls = [call for message in messages for call in message.get("tool_calls", [])]
    assert [call["function"]["arguments"] for call in calls] == [{"city": "Rome"}, {}]
    assert messages[1]["content"] == ""
    assert tools == [WEATHER.described()]
    assert isinstance(HISTORY[1]["tool_calls"][0]["function"]["arguments"], str)  # the caller's are left alone


@pytest.mark.parametrize("arguments", ["not JSON", '{"a": ', '{"a": "\\ud800"}'])
def test_arguments_that_are_no_json_stay_as_they_are(arguments: str) -> None:
    history = [{"role": "assistant", "content": "", "tool_calls": [call("1", "clock", arguments)]}]
    for name in ("hermes", "mistral", "llama3"):
        messages, _ = FORMATS[name].prepare(history, None)
        assert messages[0]["tool_calls"][0]["function"]["arguments"] == arguments
    for name in ("described", "gemma", "phi4-mini"):
        messages, _ = FORMATS[name].prepare(history, None)
        assert json.dumps(arguments) in messages[0]["content"]


def test_llama_gets_one_call_a_message_with_its_result_behind() -> None:
    messages, _ = FORMATS["llama3"].prepare([*HISTORY, THANKS], None)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "tool", "user"]
    assert [len(message["tool_calls"]) for message in messages if "tool_calls" in message] == [1, 1]
    assert [message["content"] for message in messages if message["role"] == "tool"] == ["warm", "noon"]
    assert messages[1]["tool_calls"][0]["function"]["name"] == "get_weather"


def test_llama_loses_no_result_whose_call_is_unknown() -> None:
    stray = {"role": "tool", "tool_call_id": "call_9", "content": "stray"}
    messages, _ = FORMATS["llama3"].prepare([*HISTORY, stray], None)
    assert [message["content"] for message in messages[2:]] == ["warm", "", "noon", "stray"]
    messages, _ = FORMATS["llama3"].prepare([stray, THANKS], None)
    assert [message["content"] for message in messages] == ["stray", "Thanks"]


@pytest.mark.parametrize("name", ["mistral", "mistral-v11", "mistral-v13"])
def test_mistral_gets_ids_that_it_takes(name: str) -> None:
    messages, _ = FORMATS[name].prepare(HISTORY, None)
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", each) for each in ids)
    assert [message["tool_call_id"] for message in messages[2:]] == ids[::-1]


@pytest.mark.parametrize(
    ("name", "roles"),
    [("described", ["system", "user", "assistant", "user"]), ("gemma", ["user", "assistant", "user"])],
)
def test_a_template_without_tools_is_told_in_words(name: str, roles: list[str]) -> None:
    messages, tools = FORMATS[name].prepare([SYSTEM, *HISTORY], [CLOCK.described()])
    assert tools is None
    assert [message["role"] for message in messages] == roles
    assert messages[0]["content"].startswith("Be brief.\n\n")
    assert json.dumps(CLOCK.described()) in messages[0]["content"]
    assert joined(parse(name, messages[-2]["content"])) == ("", CALLS)
    assert messages[-1]["content"].count("<tool_response>") == 2


def test_results_and_what_the_user_says_next_are_one_turn() -> None:
    messages, _ = FORMATS["gemma"].prepare([*HISTORY, THANKS, THANKS], None)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "user"]
    assert messages[2]["content"].endswith("</tool_response>\n\nThanks")
    assert messages[3] == THANKS


NO_SYSTEM = "{{ raise_exception('System role not supported') }}"


@pytest.mark.parametrize("source", [NO_SYSTEM, NO_SYSTEM + "<start_of_turn>"])
def test_a_template_without_a_system_role_gets_all_with_the_first_message(source: str) -> None:
    without = format_for(source)
    messages, _ = without.prepare(HISTORY[:1], [CLOCK.described()])
    assert [message["role"] for message in messages] == ["user"]
    assert messages[0]["content"].endswith("\n\nWeather?")
    assert without.prepare([SYSTEM, THANKS], None)[0] == [{"role": "user", "content": "Be brief.\n\nThanks"}]
    assert without.prepare([SYSTEM], None)[0] == [{"role": "user", "content": "Be brief."}]
    assert without.prepare([THANKS], None)[0] == [THANKS]
    assert without.prepare([], None)[0] == []


def test_phi_reads_functions_from_the_system_message() -> None:
    messages, tools = FORMATS["phi4-mini"].prepare(HISTORY, [CLOCK.described()])
    assert tools is None
    assert messages[0]["role"] == "system"
    assert json.loads(messages[0]["tools"])[0]["name"] == "clock"
    assert joined(parse("phi4-mini", messages[2]["content"]))[1] == CALLS
