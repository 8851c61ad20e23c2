"""A chat's whole answer as a message."""

from typing import Any

import msgspec

from gateway.wire.messages.chat_answer import Call, Choice, decode_chat_answer
from gateway.wire.messages.terms import message_usage, stop_reason
from gateway.wire.usage import Usage

INVALID = "INVALID_JSON"  # Anthropic's name for what is no JSON


def message(body: bytes, stop_sequences: tuple[str, ...] = ()) -> dict[str, Any]:
    """Raises ValueError for what is no chat completion."""
    try:
        answer = decode_chat_answer(body)
    except RecursionError as error:
        raise ValueError("an answer that is nested too deeply") from error
    choice = answer.choices[0] if answer.choices else Choice()
    if choice.message is None:
        raise ValueError("an answer without a message")
    reason, sequence = ending(choice, stop_sequences)
    return opening(answer.message_id, answer.model or "") | {
        "content": _blocks(choice),
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": message_usage(answer.counted() or Usage()),
    }


def opening(id: str, model: str) -> dict[str, Any]:
    """A message of which nothing is said yet."""
    told = {"id": id, "type": "message", "role": "assistant", "model": model, "content": []}
    return told | {"stop_reason": None, "stop_sequence": None, "usage": message_usage(Usage())}


def ending(choice: Choice, stop_sequences: tuple[str, ...]) -> tuple[str, str | None]:
    """stop_reason and stop_sequence."""
    if isinstance(choice.stop_reason, str) and choice.stop_reason in stop_sequences:
        return "stop_sequence", choice.stop_reason
    said = choice.message or choice.delta
    if said is not None and said.refusal:
        return "refusal", None
    return stop_reason(choice.finish_reason), None


def _blocks(choice: Choice) -> list[dict[str, Any]]:
    assert choice.message is not None
    said = choice.message
    blocks: list[dict[str, Any]] = []
    if said.thought:
        blocks.append({"type": "thinking", "thinking": said.thought, "signature": ""})
    if said.text:
        blocks.append({"type": "text", "text": said.text})
    return blocks + [_tool_use(call) for call in said.tool_calls or () if call.function is not None]


def _tool_use(call: Call) -> dict[str, Any]:
    assert call.function is not None
    arguments = tool_input(call.function.arguments or "")
    return {"type": "tool_use", "id": call.id or "", "name": call.function.name or "", "input": arguments}


def tool_input(arguments: str) -> Any:
    """Arguments, parsed. What is no JSON object is wrapped in one, as Anthropic advises for tools' inputs:
    https://platform.claude.com/docs/en/agents-and-tools/tool-use/fine-grained-tool-streaming
    """
    if not arguments.strip():
        return {}
    try:
        parsed = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return {INVALID: arguments}
    return parsed if isinstance(parsed, dict) else {INVALID: arguments}
