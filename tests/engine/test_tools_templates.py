"""Published chat templates, and small ones in the notations of Llama and Gemma, render tools, calls and results.

What a template writes for a call is read back by its format's own parser: prompt and answer speak one language.
"""

from pathlib import Path
from typing import Any

import pytest

from engine.chat_template import ChatTemplate
from engine.errors import TemplateError
from tests.engine.test_tools_history import CALLS, HISTORY, SYSTEM, THANKS, call
from tests.engine.tool_notations import TOOLS, joined

LLAMA = """\
{{ bos_token }}{% for message in messages %}{% if 'tool_calls' in message %}
{% if message.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}
{% set call = message.tool_calls[0].function %}
<|assistant|>{{ '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson }}}<|eot_id|>
{% else %}<|{{ message.role }}|>{{ message.content }}<|eot_id|>
{% endif %}{% endfor %}{{ tools | tojson if tools }}{# Respond with {"name": ..., "parameters": dictionary ...} #}
{% if add_generation_prompt %}<|assistant|>{% endif %}"""
GEMMA = """\
{{ bos_token }}{% for message in messages %}
{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% endif %}
<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}
{{ message.content | trim }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
HERMES = """\
{{ bos_token }}{% for tool in tools %}{{ tool.function.name + tool.function.description }}{% endfor %}
{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}<|im_start|>assistant
"""
FOLDER = Path(__file__).parent / "data" / "templates"
PUBLISHED = {path.stem: path.read_text("utf-8") for path in sorted(FOLDER.glob("*.jinja"))}
SOURCES = PUBLISHED | {"llama": LLAMA, "gemma": GEMMA}
DESCRIBED = [tool.described() for tool in TOOLS]


def template(name: str) -> ChatTemplate:
    return ChatTemplate(SOURCES[name], "[BOS]", "[EOS]")


def test_each_speaks_its_own_notation() -> None:
    assert {name: template(name).tool_format.name for name in SOURCES} == {
        "Qwen2.5": "hermes",
        "Qwen3": "hermes",
        "Qwen3-Coder": "qwen3-coder",
        "Mistral-Nemo": "mistral",
        "Mistral-Small-3.2": "mistral-v11",
        "Ministral-3": "mistral-v13",
        "Phi-3.5-mini": "described",
        "llama": "llama3",
        "gemma": "gemma",
    }


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("tools", [None, DESCRIBED], ids=["untold", "told"])
@pytest.mark.parametrize(
    "messages",
    [
        [THANKS],
        [SYSTEM, THANKS],
        [SYSTEM, THANKS, {"role": "assistant", "content": "You are welcome."}, THANKS],
        [SYSTEM, *HISTORY],
        [*HISTORY, {"role": "assistant", "content": "Warm, at noon."}, THANKS],
    ],
    ids=["user", "system", "turns", "results", "after"],
)
def test_nothing_is_left_out(name: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> None:
    prompt = template(name).render(messages, tools)
    for message in messages:
        assert (message["content"] or "") in prompt
        for each in message.get("tool_calls", []):
            assert each["function"]["name"] in prompt
    for tool in tools or []:
        assert tool["function"]["name"] in prompt
    assert "None" not in prompt


@pytest.mark.parametrize("name", SOURCES)
def test_calls_in_a_prompt_are_written_as_the_answers_are_read(name: str) -> None:
    own = template(name)
    before, asked = HISTORY[0], HISTORY[1]
    calls = asked["tool_calls"] if own.tool_format.name != "llama3" else asked["tool_calls"][:1]
    answer = own.render([before, asked | {"tool_calls": calls}], add_generation_prompt=False)
    start = own.render([before], add_generation_prompt=True)
    written = answer.removeprefix(start) if answer.startswith(start) else answer[answer.index(before["content"]) :]
    parser = own.tool_format.parser(TOOLS)
    _, found = joined(parser.push(written) + parser.finish())
    # Llama's calls stand behind a header here, where an answer has nothing before them.
    assert found == CALLS[: len(calls)]


def test_the_exact_prompt_of_qwen() -> None:
    prompt = template("Qwen2.5").render([SYSTEM, *HISTORY], DESCRIBED)
    assert prompt.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n\n")
    assert prompt.endswith(
        "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n"
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nnoon\n</tool_response>\n<tool_response>\nwarm\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_the_exact_prompt_of_mistral() -> None:
    prompt = template("Mistral-Nemo").render([SYSTEM, *HISTORY], None)
    ids = [call["id"] for call in template("Mistral-Nemo").tool_format.prepare(HISTORY, None)[0][1]["tool_calls"]]
    assert prompt == (
        "[BOS][INST]Be brief.\n\nWeather?[/INST][TOOL_CALLS]["
        f'{{"name": "get_weather", "arguments": {{"city": "Rome"}}, "id": "{ids[0]}"}}, '
        f'{{"name": "clock", "arguments": {{}}, "id": "{ids[1]}"}}][EOS]'
        f'[TOOL_RESULTS]{{"content": noon, "call_id": "{ids[1]}"}}[/TOOL_RESULTS]'
        f'[TOOL_RESULTS]{{"content": warm, "call_id": "{ids[0]}"}}[/TOOL_RESULTS]'
    )


def test_the_exact_prompt_of_qwen3_coder() -> None:
    prompt = template("Qwen3-Coder").render(HISTORY[:2], None, add_generation_prompt=False)
    assert prompt.endswith(
        "<|im_start|>assistant\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n"
        "</tool_call>\n<tool_call>\n<function=clock>\n</function>\n</tool_call><|im_end|>\n"
    )


def test_arguments_that_a_template_cannot_take_are_the_requests_fault() -> None:
    messages = [THANKS, {"role": "assistant", "content": "", "tool_calls": [call("1", "clock", "no JSON")]}]
    with pytest.raises(TemplateError, match="can't take these messages"):
        template("Qwen3-Coder").render(messages)


def test_a_template_for_tools_takes_the_others_place_where_there_are_any() -> None:
    plain = "{% for message in messages %}{{ message.content }}{% endfor %}"
    both = ChatTemplate(plain, "", "", tool_source=HERMES)
    assert both.tool_format.name == "hermes"
    assert both.render([THANKS]) == "Thanks"
    assert "get_weather" in both.render([THANKS], DESCRIBED)
    assert '{"name": "get_weather", "arguments": {"city": "Rome"}}' in both.render(HISTORY)
