"""Telling models of tools whose chat templates don't: in words, or in a member that only one family has."""

import json
from collections.abc import Callable
from itertools import groupby
from typing import Any, TypeAlias

from engine.tools.history import written_calls

Messages: TypeAlias = list[dict[str, Any]]
Prepare: TypeAlias = Callable[[Messages, Messages | None], tuple[Messages, Messages | None]]
"""Messages and tools in OpenAI's shape -> the same as a template expects them."""

# After the prompt of https://github.com/NousResearch/Hermes-Function-Calling, which most models have seen.
_WORDS = """\
You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


def describe_in_text(
    *, has_system_role: bool
) -> Callable[[Messages, Messages | None], tuple[Messages, Messages | None]]:
    """Tools in the system message or, where a template has none, before the first message; calls as the text they were.

    Results come as a user's message, several in a row as one: such templates have no role for them, and often insist
    that user and assistant take turns.
    """

    def prepare(messages: Messages, tools: Messages | None) -> tuple[Messages, Messages | None]:
        told: Messages = []
        for is_result, group in groupby(messages, key=lambda message: message["role"] == "tool"):
            if is_result:
                told.append({"role": "user", "content": "\n".join(map(_result, group))})
            else:
                told.extend(map(_in_words, group))
        if tools:
            words = _WORDS.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
            told = _with_words(told, words, has_system_role)
        return told, None

    return prepare


def describe_in_system_message(messages: Messages, tools: Messages | None) -> tuple[Messages, None]:
    """Phi-4-mini's template reads the functions, as a JSON text, from the system message's `tools`."""
    told: Messages = []
    for message in messages:
        content = message.get("content") or ""
        if message.get("tool_calls"):
            content += f"functools[{', '.join(written_calls(message))}]"
        told.append({"role": message["role"], "content": content})
    if tools:
        functions = json.dumps([tool["function"] for tool in tools], ensure_ascii=False)
        if not told or told[0]["role"] != "system":
            told.insert(0, {"role": "system", "content": "You are a helpful assistant with some tools."})
        told[0] = told[0] | {"tools": functions}
    return told, None


def _result(message: dict[str, Any]) -> str:
    return f"<tool_response>\n{message.get('content') or ''}\n</tool_response>"


def _in_words(message: dict[str, Any]) -> dict[str, Any]:
    """A message with its calls written out."""
    content = message.get("content") or ""
    calls = [f"<tool_call>\n{call}\n</tool_call>" for call in written_calls(message)]
    plain = {name: value for name, value in message.items() if name != "tool_calls"}
    return plain | {"content": "\n".join([content, *calls] if content else calls) if calls else content}


def _with_words(told: Messages, words: str, has_system_role: bool) -> Messages:
    first = told[0] if told else {"role": "user", "content": ""}
    if first["role"] == "system" or not has_system_role:
        parts = [first["content"], words] if first["role"] == "system" else [words, first["content"]]
        return [first | {"content": "\n\n".join(part for part in parts if part)}, *told[1:]]
    return [{"role": "system", "content": words}, *told]
