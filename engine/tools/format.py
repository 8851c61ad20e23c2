"""A chat format: how a model is told of tools, how it writes calls, and which of the formats a template means."""

import hashlib
import re
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass

from engine.tools.grammar import announced_calls, forced_calls
from engine.tools.history import Messages, one_call_a_message, system_with_last_user, with_objects
from engine.tools.parser import ToolCallParser
from engine.tools.prompting import (
    GEMMA_WORDING,
    HERMES_WORDING,
    Prepare,
    describe_in_system_message,
    describe_in_text,
)
from engine.tools.syntax import (
    GEMMA,
    HERMES,
    LLAMA3,
    MISTRAL,
    MISTRAL_V11,
    MISTRAL_V13,
    PHI4_MINI,
    QWEN3_CODER,
    Syntax,
)
from engine.tools.types import Tool
from engine.types import Grammar

_ALPHANUMERIC = string.ascii_letters + string.digits
_JSON_CALL = re.compile(r"""<tool_call>.{0,40}?\{\\*"name\\*":""", re.DOTALL)


@dataclass(slots=True, frozen=True)
class ToolFormat:
    """`prepare` gives a template the messages and tools in the shape that it expects.

    `has_short_ids`: calls have ids of 9 letters and digits, as Mistral's templates take no other.
    """

    name: str
    syntax: Syntax
    prepare: Prepare
    has_short_ids: bool = False

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
        return ToolCallParser(self.syntax, tools, self._new_id, most)

    def _new_id(self) -> str:
        if self.has_short_ids:
            return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))
        return "call_" + secrets.token_hex(12)


def format_for(template: str) -> ToolFormat:
    """By what the source of a chat template has in it. One in no notation known here gets tools told in plain words."""
    if "tools" in template:
        if "[TOOL_CALLS]" in template:
            return _mistral(template)
        if "<tool_call>" in template and "<function=" in template and "<parameter=" in template:
            return ToolFormat("qwen3-coder", QWEN3_CODER, _as_templates_expect)
        if _JSON_CALL.search(template):
            return ToolFormat("hermes", HERMES, _as_templates_expect)
        if ("<|python_tag|>" in template or '"parameters": dictionary' in template) and "<function=" not in template:
            return ToolFormat("llama3", LLAMA3, _one_by_one)
        if "<|tool|>" in template and "'tools' in message" in template:
            return ToolFormat("phi4-mini", PHI4_MINI, describe_in_system_message)
    if "<start_of_turn>" in template:  # its system message, where there is one, goes before the first of the user's
        return ToolFormat("gemma", GEMMA, describe_in_text(GEMMA_WORDING, has_system_role=False))
    has_system_role = "System role not supported" not in template
    return ToolFormat("described", HERMES, describe_in_text(HERMES_WORDING, has_system_role=has_system_role))


def _mistral(template: str) -> ToolFormat:
    if "[ARGS]" not in template:
        loses_system = "loop.last and system_message is defined" in template
        return ToolFormat("mistral", MISTRAL, _with_moved_system if loses_system else _with_short_ids, True)
    if "[CALL_ID]" in template:
        return ToolFormat("mistral-v11", MISTRAL_V11, _with_short_ids, True)
    return ToolFormat("mistral-v13", MISTRAL_V13, _with_short_ids, True)


def _as_templates_expect(messages: Messages, tools: Messages | None) -> tuple[Messages, Messages | None]:
    return with_objects(messages), tools


def _one_by_one(messages: Messages, tools: Messages | None) -> tuple[Messages, Messages | None]:
    return one_call_a_message(with_objects(messages)), tools


def _with_moved_system(messages: Messages, tools: Messages | None) -> tuple[Messages, Messages | None]:
    return _with_short_ids(system_with_last_user(messages), tools)


def _with_short_ids(messages: Messages, tools: Messages | None) -> tuple[Messages, Messages | None]:
    """Ids that Mistral's templates would refuse get another name, always the same."""
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
