"""The client's own bytes with another model's name in them, and nothing else touched.

Key order, spacing, number formats, escapes and fields that nobody here knows reach the upstream as they were written.
"""

import msgspec

from gateway.wire.inference import Inference
from gateway.wire.members import RepeatedKeyError, decode_members, insert_first, locate, replace

_Change = tuple[int, int, bytes]


def splice(inference: Inference, *, model: str, include_usage: bool | None = None) -> bytes:
    """The body to send on. `include_usage` sets `stream_options.include_usage` of a stream; None leaves it alone.

    Returns `inference.raw` itself when nothing changes.
    """
    raw, fields = inference.raw, inference.fields
    if inference.form is not None:
        return replace(raw, [(*inference.form.model, model.encode())])
    wanted: dict[str, bytes] = {}
    if model != inference.model or "model" not in fields:
        wanted["model"] = msgspec.json.encode(model)
    if include_usage is not None and inference.stream and include_usage != inference.include_usage:
        wanted["stream_options"] = _stream_options(fields.get("stream_options"), include_usage)
    return splice_members(raw, fields, wanted) if wanted else raw


def renamed(inference: Inference, old: str, new: str) -> Inference:
    """The same request with one field under another name; itself where it has no such field, or both."""
    if old not in inference.fields or new in inference.fields:
        return inference
    member = locate(inference.raw, inference.fields)[old]
    key = member.key_start, member.key_start + len(msgspec.json.encode(old)), msgspec.json.encode(new)
    raw = replace(inference.raw, [key])
    return msgspec.structs.replace(inference, raw=raw, fields=decode_members(raw))


def splice_members(raw: bytes, fields: dict[str, msgspec.Raw], wanted: dict[str, bytes]) -> bytes:
    """`raw`, of which `fields` are the members, with these values in the place of its own."""
    try:
        return replace(raw, _changes(raw, fields, wanted))
    except RepeatedKeyError:
        # Two readers could take this body in two ways: send the one that was judged here.
        merged = {name: bytes(value) for name, value in fields.items()} | wanted
        return b"{" + b",".join(msgspec.json.encode(name) + b":" + value for name, value in merged.items()) + b"}"


def _changes(raw: bytes, fields: dict[str, msgspec.Raw], wanted: dict[str, bytes]) -> list[_Change]:
    members = locate(raw, fields)
    changes: list[_Change] = []
    for name, value in wanted.items():
        member = members.get(name)
        if member is None:
            changes.append(insert_first(raw, name.encode(), value))
        else:
            changes.append((member.value_start, member.value_end, value))
    return changes


def _stream_options(current: msgspec.Raw | None, include_usage: bool) -> bytes:
    """The client's options with one member set."""
    value = b"true" if include_usage else b"false"
    raw = bytes(current) if current is not None else b"null"
    if raw == b"null":
        return b'{"include_usage":' + value + b"}"
    fields = decode_members(raw)
    try:
        return replace(raw, _changes(raw, fields, {"include_usage": value}))
    except RepeatedKeyError:
        return msgspec.json.encode(fields | {"include_usage": msgspec.Raw(value)})
