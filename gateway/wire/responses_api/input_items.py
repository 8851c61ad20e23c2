"""What a request puts in: checked, and brought into the one shape in which it is stored and listed.

A text is a user's message; every item but a reference has an id, which names its response so that it can be found.
"""

from typing import Any

import msgspec

from gateway.errors import InvalidRequestError
from gateway.wire.body import invalid, missing
from gateway.wire.responses_api.shapes import shaped, unsupported

Item = dict[str, Any]

MAX_ITEMS = 10_000
ROLES = ("user", "assistant", "system", "developer")
ID_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]]
    id: str | None = None


class _FunctionCall(msgspec.Struct):
    call_id: str
    name: str
    arguments: str
    id: str | None = None


class _FunctionCallOutput(msgspec.Struct):
    call_id: str
    output: str | list[dict[str, Any]]
    id: str | None = None


class _Reasoning(msgspec.Struct):
    summary: list[dict[str, Any]]
    content: list[dict[str, Any]] | None = None
    id: str | None = None


class _Reference(msgspec.Struct):
    id: str


class _Text(msgspec.Struct):
    text: str


class _Refusal(msgspec.Struct):
    refusal: str


class _Image(msgspec.Struct):
    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class _File(msgspec.Struct):
    file_id: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None


_ITEMS: dict[str, type[msgspec.Struct]] = {
    "message": _Message,
    "function_call": _FunctionCall,
    "function_call_output": _FunctionCallOutput,
    "reasoning": _Reasoning,
    "item_reference": _Reference,
}
_INPUT_PARTS: dict[str, type[msgspec.Struct]] = {"input_text": _Text, "input_image": _Image, "input_file": _File}
_OUTPUT_PARTS: dict[str, type[msgspec.Struct]] = {"output_text": _Text, "refusal": _Refusal}


def item_id(kind: str, response_id: str, number: int) -> str:
    """`number`: the item's place among all of its response, those put in first."""
    return f"{ID_PREFIXES[kind]}_{response_id.removeprefix('resp_')}{number:04x}"


def response_of(item: str) -> str | None:
    """The response whose item this id may name; None for an id that is none of ours."""
    _, _, rest = item.partition("_")
    return f"resp_{rest[:32]}" if len(rest) == 36 else None


def kind_of(item: Item) -> str:
    """What an item is, where it does not say so: a message by its role, a reference by having nothing but an id."""
    kind = item.get("type")
    if kind is not None:
        return str(kind)
    return "message" if "role" in item else "item_reference"


def check_items(items: list[Item]) -> None:
    """Raises InvalidRequestError for the first item that makes no sense, or is of a kind that we don't have."""
    if len(items) > MAX_ITEMS:
        raise invalid("input", f"more than {MAX_ITEMS} items")
    for index, item in enumerate(items):
        where, kind = f"input[{index}]", kind_of(item)
        if kind not in _ITEMS:
            raise unsupported(f"input items of type {kind[:64]!r}", f"{where}.type")
        found = shaped(item, _ITEMS[kind], where)
        if isinstance(found, _Message):
            _check_message(found, where)
        elif isinstance(found, _FunctionCallOutput):
            _check_content(found.output, _INPUT_PARTS, f"{where}.output")


def normalise(given: str | list[Item], response_id: str) -> list[Item]:
    """The items as they are stored. Ids that a client gives are kept: they may name what was said before."""
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return [_normal(item, response_id, number) for number, item in enumerate(items)]


def _normal(item: Item, response_id: str, number: int) -> Item:
    kind = kind_of(item)
    if kind == "item_reference":
        return {"type": kind, "id": item["id"]}
    normal: Item = {"id": item_id(kind, response_id, number), "type": kind, "status": "completed"}
    normal |= {name: value for name, value in item.items() if value is not None}
    if kind == "message":
        normal["content"] = _parts(item["role"], item["content"])
    return normal


def _parts(role: str, content: str | list[Item]) -> list[Item]:
    if isinstance(content, str):
        content = [{"type": "output_text" if role == "assistant" else "input_text", "text": content}]
    return [_OWN_DEFAULTS.get(part["type"], {}) | part for part in content]


_OWN_DEFAULTS: dict[str, Item] = {
    "output_text": {"annotations": [], "logprobs": []},
    "input_image": {"detail": "auto"},
}


def _check_message(message: _Message, where: str) -> None:
    if message.role not in ROLES:
        raise invalid(f"{where}.role", f"{message.role[:64]!r} is not one of {', '.join(ROLES)}")
    parts = _OUTPUT_PARTS if message.role == "assistant" else _INPUT_PARTS
    _check_content(message.content, parts, f"{where}.content")


def _check_content(content: str | list[dict[str, Any]], kinds: dict[str, type[msgspec.Struct]], where: str) -> None:
    if isinstance(content, str):
        return
    if not content:
        raise invalid(where, "expected at least one part")
    for index, part in enumerate(content):
        at = f"{where}[{index}]"
        kind = str(part.get("type"))
        if kind not in kinds:
            raise invalid(f"{at}.type", f"{kind[:64]!r} is not one of {', '.join(kinds)}")
        found = shaped(part, kinds[kind], at)
        if isinstance(found, _Image):
            _check_image(found, at)
        elif isinstance(found, _File):
            _check_file(found, at)


def _check_image(image: _Image, where: str) -> None:
    if image.image_url is None:
        if image.file_id is not None:
            raise unsupported("images by 'file_id': give an 'image_url', which may be a data URL", f"{where}.file_id")
        raise missing(f"{where}.image_url")


def _check_file(file: _File, where: str) -> None:
    if file.file_url is not None:
        raise unsupported("files by 'file_url': give 'file_data' or a 'file_id'", f"{where}.file_url")
    if file.file_data is None and file.file_id is None:
        raise missing(f"{where}.file_data")


def check_resolved(items: list[Item]) -> None:
    """Raises InvalidRequestError for a call without output, or an output without call: no model takes those."""
    calls = {item["call_id"] for item in items if item["type"] == "function_call"}
    outputs = {item["call_id"] for item in items if item["type"] == "function_call_output"}
    for what, left in (("call found for function call output", outputs - calls), ("output found for", calls - outputs)):
        if left:
            raise InvalidRequestError(f"No tool {what} function call {min(left)[:64]!r}.", param="input")
