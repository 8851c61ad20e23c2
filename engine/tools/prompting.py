"""Telling models of tools whose chat templates don't: in words, or in a member that only one family has."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from engine.tools.calls.python_call import written_in_python
from engine.tools.history import Messages, arguments_of

Prepare: TypeAlias = Callable[[Messages, Messages | None], tuple[Messages, Messages | None]]
"""Messages and tools in OpenAI's shape -> the same as a template expects them."""

Calls: TypeAlias = list[tuple[str, Any]]
"""Names and arguments."""


@dataclass(slots=True, frozen=True)
class Wording:
    """`words`: what a model is told, with a place for "{tools}". `write`: calls as it is told to write them."""

    words: str
    write: Callable[[Calls], str]


def _as_hermes(calls: Calls) -> str:
    return "\n".join(f"<tool_call>\n{_as_object(name, arguments)}\n</tool_call>" for name, arguments in calls)


def _as_python(calls: Calls) -> str:
    return f"[{', '.join(written_in_python(name, arguments) for name, arguments in calls)}]"


def _as_object(name: str, arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


# After the prompt of https://github.com/NousResearch/Hermes-Function-Calling, which most models have seen.
HERMES_WORDING = Wording(
    """\
You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>""",
    _as_hermes,
)

# The format of https://ai.google.dev/gemma/docs/capabilities/function-calling.
GEMMA_WORDING = Wording(
    """\
You have access to the functions below, each described by a JSON object. To call one or more of them, answer with
nothing but a list of the calls:
[func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)]
If none of them helps, answer in plain words.

{tools}""",
    _as_python,
)


def describe_in_text(wording: Wording, *, has_system_role: bool) -> Prepare:
    """Tools in the system message or, where a template has none, in the first message; calls as the text they were.

    Results come as a user's message, together with what the user says next: such templates have no role for them, and
    often insist that user and assistant take turns.
    """

    def prepare(messages: Messages, tools: Messages | None) -> tuple[Messages, Messages | None]:
        told: Messages = []
        for is_result, group in groupby(messages, key=lambda message: message["role"] == "tool"):
            if is_result:
                told.append({"role": "user", "content": "\n".join(map(_result, group))})
            else:
                spoken = [_in_words(message, wording) for message in group]
                if told and spoken[0]["role"] == "user":  # behind results
                    told[-1]["content"] += "\n\n" + spoken.pop(0)["content"]
                told.extend(spoken)
        words = ""
        if tools:
            words = wording.words.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
        return _with_words(told, words, has_system_role), None

    return prepare


def describe_in_system_message(messages: Messages, tools: Messages | None) -> tuple[Messages, None]:
    """Phi-4-mini's template reads the functions, as a JSON text, from the system message's `tools`."""
    told: Messages = []
    for message in messages:
        content = message.get("content") or ""
        if calls := _calls(message):
            content += f"functools[{', '.join(_as_object(*call) for call in calls)}]"
        told.append({"role": message["role"], "content": content})
    if tools:
        functions = json.dumps([tool["function"] for tool in tools], ensure_ascii=False)
        if not told or told[0]["role"] != "system":
            told.insert(0, {"role": "system", "content": "You are a helpful assistant with some tools."})
        told[0] = told[0] | {"tools": functions}
    return told, None


def _calls(message: dict[str, Any]) -> Calls:
    return [(call["function"]["name"], arguments_of(call)) for call in message.get("tool_calls") or ()]


def _result(message: dict[str, Any]) -> str:
    return f"<tool_response>\n{message.get('content') or ''}\n</tool_response>"


def _in_words(message: dict[str, Any], wording: Wording) -> dict[str, Any]:
    """A message with its calls written out."""
    parts = [message.get("content") or ""]
    if calls := _calls(message):
        parts.append(wording.write(calls))
    plain = {name: value for name, value in message.items() if name != "tool_calls"}
    return plain | {"content": "\n".join(filter(None, parts))}


def _with_words(told: Messages, words: str, has_system_role: bool) -> Messages:
    """`words` behind the system message; all that as a user's, where there is no system role."""
    has_system = bool(told) and told[0]["role"] == "system"
    text = "\n\n".join(filter(None, [told[0]["content"] if has_system else "", words]))
    others = told[1:] if has_system else told
    if has_system_role:
        return [{"role": "system", "content": text}, *others] if text else told
    if not text:
        return others
    if others and others[0]["role"] == "user":
        return [others[0] | {"content": f"{text}\n\n{others[0]['content']}"}, *others[1:]]
    return [{"role": "user", "content": text}, *others]
