"""The output items of a response, built from a chat's deltas, and the events that tell of each step.

A whole chat message is one large delta, so whole and streamed answers are built by the same hands.
"""

from collections.abc import Iterator
from typing import Any

from gateway.wire.responses_api.input_items import Item, item_id

Event = dict[str, Any]  # without its sequence_number

_TEXT_OF = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text"}  # a part's kind -> its text's name
_REASONING = ("reasoning_content", "reasoning")  # what various servers call it


class Output:
    """`first_number`: how many items its response has already, those that were put in."""

    def __init__(self, response_id: str, first_number: int) -> None:
        self.items: list[Item] = []
        self._response_id = response_id
        self._first_number = first_number
        self._part: _Part | None = None  # of the message or reasoning item that is being written
        self._calls: dict[Any, _Call] = {}  # by the place that the chat gives them

    def add(self, delta: dict[str, Any], logprobs: dict[str, Any] | None = None) -> Iterator[Event]:
        """A chat's delta, or a whole message. `logprobs`: as beside it in the choice.

        Raises TypeError or AttributeError for what is none, and what came before stands.
        """
        for name in _REASONING:
            if text := text_in(delta, name):
                yield from self._write("reasoning", "reasoning_text", text, None)
                break
        if text := text_in(delta, "content"):
            yield from self._write("message", "output_text", text, (logprobs or {}).get("content"))
        if text := text_in(delta, "refusal"):
            yield from self._write("message", "refusal", text, None)
        for call in delta.get("tool_calls") or ():
            yield from self._call(call)

    def close(self, status: str = "completed") -> Iterator[Event]:
        """Ends what is open: "completed", or "incomplete" where the answer was cut."""
        yield from self._close_part(status)
        for call in self._calls.values():
            yield from call.close(status)
        self._calls = {}

    def snapshot(self) -> list[Item]:
        """The items as far as they are written, changing nothing."""
        items = list(self.items)
        for open_one in (self._part, *self._calls.values()):
            if open_one is not None:
                items[open_one.index] = open_one.so_far()
        return items

    def _write(self, kind: str, part_kind: str, text: str, logprobs: Any) -> Iterator[Event]:
        part = self._part
        if part is None or part.item["type"] != kind:
            yield from self._close_part("completed")
            content: dict[str, Any] = {"role": "assistant"} if kind == "message" else {"summary": []}
            item = self._new_item(kind, content | {"content": []})
            yield _added(item, len(self.items) - 1)
            part = self._part = _Part(item, len(self.items) - 1, part_kind)
            yield part.opened()
        elif part.kind != part_kind:
            yield from part.close()
            part = self._part = _Part(part.item, part.index, part_kind)
            yield part.opened()
        yield part.add(text, logprobs)

    def _close_part(self, status: str) -> Iterator[Event]:
        part, self._part = self._part, None
        if part is not None:
            yield from part.close()
            part.item["status"] = status
            yield _done(part.item, part.index)

    def _call(self, delta: dict[str, Any]) -> Iterator[Event]:
        """Pieces of parallel calls may be mixed. A server that leaves `index` out begins a new call with each id."""
        place = delta.get("index")
        if place is None:
            place = text_in(delta, "id") or next(reversed(self._calls), None)
        function = delta.get("function") or {}
        call = self._calls.get(place)
        if call is None:
            yield from self._close_part("completed")
            number = len(self.items)
            call_id = text_in(delta, "id") or f"call_{self._response_id.removeprefix('resp_')}{number}"
            named = {"call_id": call_id, "name": text_in(function, "name"), "arguments": ""}
            item = self._new_item("function_call", named)
            call = self._calls[place] = _Call(item, number)
            yield _added(item, number)
        if text := text_in(function, "arguments"):
            yield call.add(text)

    def _new_item(self, kind: str, fields: Item) -> Item:
        number = self._first_number + len(self.items)
        item = {"id": item_id(kind, self._response_id, number), "type": kind, "status": "in_progress"} | fields
        self.items.append(item)
        return item


class _Part:
    """A text, refusal or reasoning text that is being written, the last one of its item."""

    def __init__(self, item: Item, index: int, kind: str) -> None:
        self.item = item
        self.index = index
        self.kind = kind
        self._pieces: list[str] = []
        self._logprobs: list[Item] = []
        self._at = {"item_id": item["id"], "output_index": index, "content_index": len(item["content"])}

    def opened(self) -> Event:
        return {"type": "response.content_part.added"} | self._at | {"part": self._content()}

    def add(self, text: str, logprobs: list[Item] | None) -> Event:
        self._pieces.append(text)
        event = {"type": f"response.{self.kind}.delta"} | self._at | {"delta": text}
        if self.kind == "output_text":
            told = [_logprob(entry) for entry in logprobs or ()]
            self._logprobs += told
            event["logprobs"] = told
        return event

    def close(self) -> Iterator[Event]:
        content = self._content()
        self.item["content"].append(content)
        name = _TEXT_OF[self.kind]
        event = {"type": f"response.{self.kind}.done"} | self._at | {name: content[name]}
        if self.kind == "output_text":
            event["logprobs"] = content["logprobs"]
        yield event
        yield {"type": "response.content_part.done"} | self._at | {"part": content}

    def so_far(self) -> Item:
        return self.item | {"content": [*self.item["content"], self._content()]}

    def _content(self) -> Item:
        content: Item = {"type": self.kind, _TEXT_OF[self.kind]: "".join(self._pieces)}
        if self.kind == "output_text":
            content |= {"annotations": [], "logprobs": list(self._logprobs)}
        return content


class _Call:
    """A function call whose arguments are being written."""

    def __init__(self, item: Item, index: int) -> None:
        self.item = item
        self.index = index
        self._pieces: list[str] = []
        self._at = {"item_id": item["id"], "output_index": index}

    def add(self, text: str) -> Event:
        self._pieces.append(text)
        return {"type": "response.function_call_arguments.delta"} | self._at | {"delta": text}

    def close(self, status: str) -> Iterator[Event]:
        self.item |= {"arguments": "".join(self._pieces), "status": status}
        said = {"name": self.item["name"], "arguments": self.item["arguments"]}
        yield {"type": "response.function_call_arguments.done"} | self._at | said
        yield _done(self.item, self.index)

    def so_far(self) -> Item:
        return self.item | {"arguments": "".join(self._pieces)}


def text_in(said: dict[str, Any], name: str) -> str:
    """ "" where there is none; of content in parts, as some servers send it, their texts.

    Raises TypeError and AttributeError for what is no text: joined to the others it would spoil them all.
    """
    text = said.get(name) or ""
    if isinstance(text, list):
        return "".join(part["text"] for part in text if isinstance(part.get("text"), str))
    if not isinstance(text, str):
        raise TypeError(f"{name} is no text")
    return text


def _added(item: Item, index: int) -> Event:
    return {"type": "response.output_item.added", "output_index": index, "item": dict(item)}


def _done(item: Item, index: int) -> Event:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _logprob(entry: Item) -> Item:
    """Chat's entry, whose `bytes` may be null for a control token."""
    tops = [_token(top) for top in entry.get("top_logprobs") or ()]
    return _token(entry) | {"top_logprobs": tops}


def _token(entry: Item) -> Item:
    return {"token": entry["token"], "logprob": entry["logprob"], "bytes": entry.get("bytes") or []}
