"""Requests that only a provider can answer: moderations, audio, images. What we must know of them, and no more."""

from typing import Any

import msgspec

from gateway.wire.body import check_model, decode_body, invalid, missing
from gateway.wire.form import locate_parts
from gateway.wire.inference import Endpoint, Form, Inference

MAX_MODEL_BYTES = 1024


class _Fields(msgspec.Struct):
    model: str | None = None
    input: Any = msgspec.UNSET
    prompt: Any = msgspec.UNSET
    voice: Any = msgspec.UNSET
    user: str | None = None


_decoder = msgspec.json.Decoder(_Fields)
_REQUIRED: dict[str, tuple[str, ...]] = {
    "moderations": ("input",),
    "audio.speech": ("input", "voice"),
    "images.generations": ("prompt",),
}


def parse_passing(endpoint: Endpoint, default_model: str, raw: bytes) -> Inference:
    """A body of JSON. `default_model`: "" where the client has to name one. Raises InvalidRequestError."""
    fields, body = decode_body(raw, _decoder)
    for name in _REQUIRED[endpoint]:
        value = getattr(body, name)
        if value is msgspec.UNSET or value is None:
            raise missing(name)
        if isinstance(value, bool | int | float):
            raise invalid(name, "expected text")
    model = body.model or default_model
    check_model(model)
    return Inference(endpoint=endpoint, raw=raw, fields=fields, model=model, user=body.user)


def parse_audio(endpoint: Endpoint, content_type: str | None, raw: bytes) -> Inference:
    """A form with a file and a model. Raises InvalidRequestError."""
    parts = locate_parts(raw, content_type)
    places = {}
    for name in ("file", "model"):
        found = [part for part in parts if part.name == name]
        if not found:
            raise missing(name)
        if len(found) > 1:
            raise invalid(name, "given more than once")
        places[name] = found[0].start, found[0].end
    start, end = places["model"]
    try:
        model = raw[start : min(end, start + MAX_MODEL_BYTES)].decode()
    except UnicodeDecodeError as error:
        raise invalid("model", "not valid UTF-8") from error
    check_model(model)
    form = Form(content_type=content_type or "", model=places["model"])
    return Inference(endpoint=endpoint, raw=raw, fields={}, model=model, form=form)
