"""What of a chat's answer a message is made of, in whole answers and in chunks. Lenient: not every server is OpenAI."""

from typing import Any

import msgspec

from gateway.wire.usage import Usage, read_usage


class Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Said(msgspec.Struct):
    """A whole message, or a delta of one."""

    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # another name for it
    tool_calls: list[Call] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part["text"] for part in self.content if isinstance(part.get("text"), str))
        return self.content or self.refusal or ""

    @property
    def thought(self) -> str:
        return self.reasoning_content or self.reasoning or ""


class Choice(msgspec.Struct):
    message: Said | None = None
    delta: Said | None = None
    finish_reason: str | None = None
    stop_reason: Any = None  # vLLM's name for the stop sequence that ended the answer


class ChatAnswer(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw()
    error: Any = None

    @property
    def message_id(self) -> str:
        return "msg_" + (self.id or "").removeprefix("chatcmpl-").removeprefix("msg_")

    def counted(self) -> Usage | None:
        return read_usage(self.usage)


decode_chat_answer = msgspec.json.Decoder(ChatAnswer).decode
