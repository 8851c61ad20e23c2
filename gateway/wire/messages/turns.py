"""The turns of an Anthropic conversation as a chat's messages, block by block; notes what a chat can't say."""

from typing import Any

import msgspec

from gateway.wire.body import invalid, member

IMAGE_FOLLOWS = "The image follows in the next message."  # in a tool's message, which holds text only


class Turn(msgspec.Struct, frozen=True):
    role: str
    content: str | list[dict[str, Any]]


class Conversation:
    """The chat so far. `needs`: capabilities, as an Inference has them; `lost`: in words, each once, in order."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.needs: set[str] = set()
        self.lost: dict[str, None] = {}
        self.unsigned = False  # thoughts of a model that signs none are among the turns

    def lose(self, what: str) -> None:
        self.lost[what] = None

    def system(self, content: str | list[dict[str, Any]], where: str) -> None:
        """Instructions, at the beginning or, on newer models, in the middle."""
        if text := content if isinstance(content, str) else self._texts(content, where):
            self.messages.append({"role": "system", "content": text})

    def add(self, turn: Turn, where: str) -> None:
        """Raises InvalidRequestError naming the member at fault."""
        where = f"{where}.content"
        if turn.role == "system":
            self.system(turn.content, where)
        elif turn.role not in ("user", "assistant"):
            raise invalid(where.replace("content", "role"), f"{turn.role[:64]!r} is not one of user, assistant, system")
        elif not turn.content:
            raise invalid(where, "a turn can't be empty")
        elif isinstance(turn.content, str):
            self.messages.append({"role": turn.role, "content": turn.content})
        elif turn.role == "user":
            self._user(turn.content, where)
        else:
            self._assistant(turn.content, where)

    def _user(self, blocks: list[dict[str, Any]], where: str) -> None:
        """Results of tools come first, as a chat wants them right behind their calls, then what the user says."""
        parts: list[dict[str, Any]] = []
        num_before = len(self.messages)
        for index, block in enumerate(blocks):
            if member(block, "type", str, f"{where}[{index}]") == "tool_result":
                parts += self._result(block, f"{where}[{index}]")
            else:
                parts += self._part(block, f"{where}[{index}]")
        if [part["type"] for part in parts] == ["text"]:
            self.messages.append({"role": "user", "content": parts[0]["text"]})
        elif parts or len(self.messages) == num_before:
            self.messages.append({"role": "user", "content": parts or ""})

    def _assistant(self, blocks: list[dict[str, Any]], where: str) -> None:
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[dict[str, Any]] = []
        for index, block in enumerate(blocks):
            place = f"{where}[{index}]"
            kind = member(block, "type", str, place)
            if kind == "text":
                texts.append(member(block, "text", str, place))
            elif kind == "tool_use":
                calls.append(_call(block, place))
            elif kind == "thinking" and not block.get("signature"):
                thoughts.append(member(block, "thinking", str, place))
                self.unsigned = True
            elif kind not in ("thinking", "redacted_thinking"):  # signed or sealed, it means nothing to another model
                self.lose(f"a block of type '{kind[:64]}'")
        message: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts)}
        if thoughts:
            message["reasoning_content"] = "\n".join(thoughts)
        if calls:
            self.needs.add("tools")
            message |= {"content": message["content"] or None, "tool_calls": calls}
        self.messages.append(message)

    def _result(self, block: dict[str, Any], where: str) -> list[dict[str, Any]]:
        """A tool's message; what of the result is no text is returned, for the user's message behind it."""
        self.needs.add("tools")
        content = block.get("content")
        if content is None or isinstance(content, str):
            parts = [{"type": "text", "text": content or ""}]
        elif isinstance(content, list) and all(isinstance(inner, dict) for inner in content):
            parts = [part for i, inner in enumerate(content) for part in self._part(inner, f"{where}.content[{i}]")]
        else:
            raise invalid(f"{where}.content", "expected a string or an array of blocks")
        others = [part for part in parts if part["type"] != "text"]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        text = "\n".join([*texts, *([IMAGE_FOLLOWS] if others else [])])
        if block.get("is_error"):
            text = f"Error: {text}"
        call_id = member(block, "tool_use_id", str, where)
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
        return others

    def _part(self, block: dict[str, Any], where: str) -> list[dict[str, Any]]:
        kind = member(block, "type", str, where)
        if kind == "text":
            return [{"type": "text", "text": member(block, "text", str, where)}]
        if kind == "image":
            return self._image(member(block, "source", dict, where), f"{where}.source")
        if kind == "document":
            return self._document(block, where)
        self.lose(f"a block of type '{kind[:64]}'")
        return []

    def _image(self, source: dict[str, Any], where: str) -> list[dict[str, Any]]:
        kind = member(source, "type", str, where)
        self.needs.add("images")
        if kind == "url":
            return [{"type": "image_url", "image_url": {"url": member(source, "url", str, where)}}]
        if kind == "base64":
            return [{"type": "image_url", "image_url": {"url": _data_url(source, where)}}]
        self.lose(f"an image whose source is of type '{kind[:64]}'")
        return []

    def _document(self, block: dict[str, Any], where: str) -> list[dict[str, Any]]:
        source = member(block, "source", dict, where)
        kind = member(source, "type", str, f"{where}.source")
        if block.get("citations") is not None and member(block, "citations", dict, where).get("enabled"):
            self.lose("citations")
        if kind == "text":
            return [{"type": "text", "text": member(source, "data", str, f"{where}.source")}]
        if kind == "base64":
            self.needs.add("files")
            name = block.get("title") or "document.pdf"
            return [{"type": "file", "file": {"filename": name, "file_data": _data_url(source, f"{where}.source")}}]
        self.lose(f"a document whose source is of type '{kind[:64]}'")
        return []

    def _texts(self, blocks: list[dict[str, Any]], where: str) -> str:
        parts = [part for index, block in enumerate(blocks) for part in self._part(block, f"{where}[{index}]")]
        return "\n".join(part["text"] for part in parts if part["type"] == "text")


def _call(block: dict[str, Any], where: str) -> dict[str, Any]:
    arguments = msgspec.json.encode(member(block, "input", dict, where)).decode()
    function = {"name": member(block, "name", str, where), "arguments": arguments}
    return {"id": member(block, "id", str, where), "type": "function", "function": function}


def _data_url(source: dict[str, Any], where: str) -> str:
    """RFC 2397."""
    return f"data:{member(source, 'media_type', str, where)};base64,{member(source, 'data', str, where)}"
