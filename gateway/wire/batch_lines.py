"""A line of a batch's input file, and the lines of its output and error files, as OpenAI writes them."""

from typing import Any, Literal

import msgspec

from gateway.wire.body import explain

MAX_CUSTOM_ID = 512


class Line(msgspec.Struct, frozen=True):
    custom_id: str
    url: str
    body: msgspec.Raw  # the request's own bytes
    model: str
    method: Literal["POST"] = "POST"


class Fault(msgspec.Struct, frozen=True):
    """What is wrong with a line of the input file; `line` counts from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class _Written(msgspec.Struct):
    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


class _Body(msgspec.Struct):
    model: str = ""
    stream: bool | None = None
    background: bool | None = None


_line = msgspec.json.Decoder(_Written)
_body = msgspec.json.Decoder(_Body)


def parse_line(raw: bytes, number: int, endpoint: str) -> Line | Fault:
    """`endpoint`: the batch's own, which all its lines must have."""
    try:
        raw.decode()
        written = _line.decode(raw)
        body = _body.decode(written.body)
    except msgspec.ValidationError as error:
        told = explain(error)
        return Fault("invalid_request", told.message, number, told.param)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Fault("invalid_json_line", f"This line is not parseable as valid JSON: {error}.", number)
    if not 0 < len(written.custom_id) <= MAX_CUSTOM_ID:
        return Fault("invalid_request", f"custom_id must have 1 to {MAX_CUSTOM_ID} characters.", number, "custom_id")
    if written.method != "POST":
        return Fault("invalid_method", "The method must be POST.", number, "method")
    if written.url != endpoint:
        message = f"The URL {written.url[:100]!r} is not the batch's endpoint, '{endpoint}'."
        return Fault("invalid_url", message, number, "url")
    if not body.model:
        return Fault("missing_required_parameter", "The body names no model.", number, "body.model")
    for name in ("stream", "background"):
        if getattr(body, name):
            return Fault("invalid_request", f"A batch's requests can't have '{name}'.", number, f"body.{name}")
    return Line(written.custom_id, written.url, written.body, body.model)


def output_line(custom_id: str, request_id: str, status: int, body: bytes) -> bytes:
    """Of the output file for a success, of the error file for a refusal. The body passes as it came, on one line."""
    response = {"status_code": status, "request_id": request_id, "body": msgspec.Raw(_on_one_line(body))}
    return _encoded(custom_id, request_id, response, None)


def unanswered_line(custom_id: str, line_id: str, code: str, message: str) -> bytes:
    """Of the error file, for a request that was not asked."""
    return _encoded(custom_id, line_id, None, {"code": code, "message": message})


def _encoded(custom_id: str, id: str, response: Any, error: Any) -> bytes:
    told = {"id": f"batch_req_{id}", "custom_id": custom_id, "response": response, "error": error}
    return msgspec.json.encode(told)


def _on_one_line(body: bytes) -> bytes:
    """Within JSON's strings line ends are escaped: those that are left are white space."""
    return body.replace(b"\n", b" ").replace(b"\r", b" ") if b"\n" in body or b"\r" in body else body
