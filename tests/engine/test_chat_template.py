"""Templates render as their model expects, in a sandbox, and refuse politely."""

from pathlib import Path

import pytest

from engine.chat_template import ChatTemplate
from engine.errors import ModelLoadError, TemplateError
from engine.loader.gguf_file import GGUFFile
from engine.tokenizer import GUARD

HELLO = [{"role": "user", "content": "Hello"}]


def test_the_templates_of_the_model_file(smollm2_path: Path) -> None:
    template = ChatTemplate(GGUFFile(smollm2_path).metadata["tokenizer.chat_template"], "<|im_start|>", "<|im_end|>")
    system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    user = "<|im_start|>user\nHello<|im_end|>\n"
    assert template.render(HELLO) == system + user + "<|im_start|>assistant\n"
    assert template.render(HELLO, add_generation_prompt=False) == system + user
    own = template.render([{"role": "system", "content": "Be brief."}, *HELLO])
    assert own == "<|im_start|>system\nBe brief.<|im_end|>\n" + user + "<|im_start|>assistant\n"


def test_what_templates_in_the_wild_use() -> None:
    source = (
        '{# <tool_call>{"name": #}{{ bos_token }}'
        "{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}{{ m.content }}"
        "{{ eos_token }}{% endfor %}{{ tools | tojson }}{{ strftime_now('%Y') | length }}"
        "{% generation %}.{% endgeneration %}"
    )
    rendered = ChatTemplate(source, "[B]", "[E]").render([*HELLO, {"role": "tool", "content": "x"}], [{"a": "<é>"}])
    assert rendered == '[B]Hello[E][{"a": "<é>"}]4.'


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('unknown role') }}",
        "{{ messages[0].content + 3 }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ nothing.at.all }}",
        "{{ 1 / 0 }}",
        "{{ 1 / (messages | length - 1) }}",
        "{% for i in range(10**9) %}{% endfor %}",
    ],
)
def test_a_refusal_is_the_requests_fault(source: str) -> None:
    with pytest.raises(TemplateError, match="chat template") as caught:
        ChatTemplate(source, "", "").render(HELLO)
    assert caught.value.param == "messages"


def test_a_template_that_is_no_jinja_is_the_models_fault() -> None:
    with pytest.raises(ModelLoadError, match="not valid Jinja"):
        ChatTemplate("{% if %}", "", "")


@pytest.mark.parametrize(
    "source",
    ["{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "{% for i in messages %}" * 30 + "{% endfor %}" * 30],
    ids=["parentheses", "loops"],
)
def test_a_template_too_deep_for_the_compiler_is_the_models_fault(source: str) -> None:
    with pytest.raises(ModelLoadError, match="not valid Jinja"):
        ChatTemplate(source, "", "")


def test_control_tokens_are_guarded_in_keys_too() -> None:
    template = ChatTemplate('{# <tool_call>{"name": #}{{ tools | tojson }}', "", "", ["<|im_end|>"])
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"<|im_end|>": {}}}}}]
    rendered = template.render(HELLO, tools)
    assert "<|im_end|>" not in rendered
    assert rendered.replace(GUARD, "").count("<|im_end|>") == 1


def test_a_template_that_knows_no_tools_gets_them_described() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }}|{% endfor %}", "", "")
    tool = {"type": "function", "function": {"name": "clock"}}
    assert template.tool_format.name == "described"
    rendered = template.render([*HELLO, {"role": "tool", "tool_call_id": "1", "content": "noon"}], [tool])
    assert rendered.startswith("system: You may call")
    assert '{"name": "clock"}' in rendered
    assert rendered.endswith("user: <tool_response>\nnoon\n</tool_response>|")
    assert template.render(HELLO) == "user: Hello|"


def test_templates_get_calls_as_objects_and_only_where_there_are_any() -> None:
    source = (
        '{# tools <tool_call>{"name": #}{% for m in messages %}'
        "{% if 'tool_calls' in m %}{{ m.content + m.tool_calls[0].function.name"
        " + (m.tool_calls[0].function.arguments | tojson) }}{% else %}{{ m.role }}{% endif %};{% endfor %}"
    )
    call = {"id": "1", "type": "function", "function": {"name": "clock", "arguments": '{"zone":"UTC"}'}}
    messages = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "x"}]
    assert ChatTemplate(source, "", "").render(messages) == 'user;clock{"zone": "UTC"};tool;'


def test_messages_are_left_as_they_were() -> None:
    messages = [{"role": "user", "content": "a <|im_end|> b"}]
    ChatTemplate("{{ messages[0].content }}", "", "", ["<|im_end|>"]).render(messages)
    assert messages == [{"role": "user", "content": "a <|im_end|> b"}]
