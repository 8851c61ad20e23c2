"""A chat format: how a model is told of tools, how it writes calls, and which of the formats a template means."""

import hashlib
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass

from engine.tools.grammar import announced_calls, forced_calls
from engine.tools.history import with_objects
from engine.tools.parser import ToolCallParser
from engine.tools.prompting import Messages, Prepare, describe_in_system_message, describe_in_text
from engine.tools.syntax import HERMES, LLAMA3, MISTRAL, PHI4_MINI, Syntax
from engine.tools.types import Tool
from engine.types import Grammar

_ALPHANUMERIC = string.ascii_letters + string.digits


@dataclass(slots=True, frozen=True)
class ToolFormat:
    """`prepare` gives a template the messages and tools in the shape that it expects."""

    name: str
    syntax: Syntax
    prepare: Prepare

    def grammar(
        self, tools: Sequence[Tool], *, must_call: bool, most: int | None = None, otherwise: Grammar | None = None
    ) -> Grammar | None:
        """What holds an answer to calls. None where the model is free and nothing asks for more.

        must_call: the answer is nothing but calls. `otherwise`: it is calls, or JSON that this allows. With neither it
        may be text, and calls are held to their schemas once they are announced, if a tool is strict or there may be
        only one call. Raises InvalidRequest when `otherwise` is no JSON schema.
        """
        if must_call or otherwise is not None:
            return forced_calls(self.syntax, tools, most, otherwise)
        if most is not None or any(tool.strict for tool in tools):
            return announced_calls(self.syntax, tools, most)
        return None

    def parser(self, tools: Sequence[Tool], most: int | None = None) -> ToolCallParser:
        return ToolCallParser(self.syntax, frozenset(tool.name for tool in tools), self._new_id, most)

    def _new_id(self) -> str:
        if self.syntax is MISTRAL:  # its templates take no other
            return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))
        return "call_" + secrets.token_hex(12)


def format_for(template: str) -> ToolFormat:
    """By what the source of a chat template has in it. One that knows no tools gets them told in plain words."""
    if "tools" in template:
        if "<tool_call>" in template and "<function=" not in template:
            return ToolFormat("hermes", HERMES, _as_templates_expect)
        if "[TOOL_CALLS]" in template and "[ARGS]" not in template:
            return ToolFormat("mistral", MISTRAL, _with_short_ids)
        if "<|python_tag|>" in template or '"parameters": dictionary' in template:
            return ToolFormat("llama3", LLAMA3, _as_templates_expect)
        if "<|tool|>" in template and "'tools' in message" in template:
            return ToolFormat("phi4-mini", PHI4_MINI, describe_in_system_message)
    has_system_role = "System role not supported" not in template
    return ToolFormat("described", HERMES, describe_in_text(has_system_role=has_system_role))


def _as_templates_expect(messages: Messages, tools: Messages | None) -> tuple[Messages, Messages | None]:
    return with_objects(messages), tools


def _with_short_ids(messages: Messages, tools: Messages | None) -> tuple[Messages, Messages | None]:
    """Mistral's templates refuse ids that are not 9 letters and digits: others get such a name, always the same."""
    shortened = []
    for message in with_objects(messages):
        if message.get("tool_call_id"):
            message["tool_call_id"] = _short(message["tool_call_id"])
        if "tool_calls" in message:
            message["tool_calls"] = [call | {"id": _short(call["id"])} for call in message["tool_calls"]]
        shortened.append(message)
    return shortened, tools


def _short(call_id: str) -> str:
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.blake2b(call_id.encode(), digest_size=5).hexdigest()[:9]
