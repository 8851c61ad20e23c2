"""A provider's message as a chat completion, and its events as chunks."""

import time
from typing import Any

import msgspec

from gateway.wire.chunks import ChatChunks
from gateway.wire.messages.errors import openai_error
from gateway.wire.messages.terms import MessageUsage, finish_reason
from gateway.wire.sse import DONE
from gateway.wire.usage import Usage, usage_object


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _Message(msgspec.Struct):
    id: str = ""
    model: str = ""
    content: list[_Block] = []
    stop_reason: str | None = None
    usage: MessageUsage = msgspec.field(default_factory=MessageUsage)


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: MessageUsage | None = None
    error: Any = None


_decode_message = msgspec.json.Decoder(_Message).decode
_decode_event = msgspec.json.Decoder(_Event).decode


def chat_completion(body: bytes) -> bytes:
    """Blocks that a chat has no place for (results of Anthropic's own tools) are left out.

    Raises ValueError for what is no message.
    """
    try:
        message = _decode_message(body)
    except RecursionError as error:
        raise ValueError("a message that is nested too deeply") from error
    if message.stop_reason is None:
        raise ValueError("a message without stop_reason")
    choice = {"index": 0, "message": _chat_message(message), "logprobs": None}
    head = {"id": message.id, "object": "chat.completion", "created": int(time.time()), "model": message.model}
    choices = [choice | {"finish_reason": finish_reason(message.stop_reason)}]
    return msgspec.json.encode(head | {"choices": choices, "usage": usage_object(message.usage.counted())})


def _chat_message(message: _Message) -> dict[str, Any]:
    text = "".join(block.text for block in message.content if block.type == "text")
    thought = "".join(block.thinking for block in message.content if block.type == "thinking")
    calls = [_call(block) for block in message.content if block.type == "tool_use"]
    told: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
    if thought:
        told["reasoning_content"] = thought
    return told | {"tool_calls": calls} if calls else told


def _call(block: _Block) -> dict[str, Any]:
    function = {"name": block.name, "arguments": bytes(block.input).decode()}
    return {"id": block.id, "type": "function", "function": function}


class CompletionChunks:
    """Payloads of one message's stream in, payloads of a chat's stream out; [DONE] when the message is whole."""

    def __init__(self, *, null_usage: bool) -> None:
        self._null_usage = null_usage
        self._chunks: ChatChunks | None = None
        self._calls: dict[int, int] = {}  # a block's index -> the call's
        self._silent: set[int] = set()  # calls whose arguments have not begun
        self._usage = Usage()

    def feed(self, payload: bytes) -> list[bytes]:
        """Usage follows the finish, whoever asked; the relay takes it out for a client that did not.

        Raises ValueError for what is no event.
        """
        try:
            event = _decode_event(payload)
        except RecursionError as error:
            raise ValueError("an event that is nested too deeply") from error
        if event.error is not None:
            return [openai_error(payload)]
        if event.message is not None:
            self._chunks = ChatChunks(
                event.message.id, int(time.time()), event.message.model, null_usage=self._null_usage
            )
            self._count(event.message.usage)
            return self._chunks.opening(0)
        return self._follow(event)

    def _follow(self, event: _Event) -> list[bytes]:
        chunks = self._chunks
        if chunks is None:
            return []  # a ping before the message began
        if event.type == "content_block_start" and event.content_block is not None:
            return self._begin(chunks, event.index, event.content_block)
        if event.type == "content_block_delta" and event.delta is not None:
            return self._add(chunks, event.index, event.delta)
        if event.type == "content_block_stop" and event.index in self._silent:
            return [chunks.arguments(0, self._calls[event.index], "{}")]
        if event.type == "message_delta" and event.delta is not None:
            if event.usage is not None:
                self._count(event.usage)
            reason = event.delta.stop_reason
            return [chunks.finish(0, finish_reason(reason)), chunks.usage(self._usage)] if reason is not None else []
        return [DONE] if event.type == "message_stop" else []

    def _begin(self, chunks: ChatChunks, index: int, block: _Block) -> list[bytes]:
        if block.type == "tool_use":
            self._calls[index] = len(self._calls)
            self._silent.add(index)
            return [chunks.call(0, self._calls[index], block.id, block.name)]
        return self._add(chunks, index, _Delta(text=block.text, thinking=block.thinking))

    def _add(self, chunks: ChatChunks, index: int, delta: _Delta) -> list[bytes]:
        if delta.text:
            return [chunks.text(0, delta.text)]
        if delta.thinking:
            return [chunks.delta(0, {"reasoning_content": delta.thinking})]
        if delta.partial_json and index in self._calls:
            self._silent.discard(index)
            return [chunks.arguments(0, self._calls[index], delta.partial_json)]
        return []

    def _count(self, usage: MessageUsage) -> None:
        self._usage = usage.counted().maximum(self._usage)
