"""Anthropic's Messages API as a dialect of the pipeline's: its requests in, its messages and events out."""

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.errors import ApiError, UpstreamError
from gateway.wire.inference import Inference
from gateway.wire.messages.answer import message
from gateway.wire.messages.chat_answer import decode_chat_answer
from gateway.wire.messages.errors import error_body, refusal_body, streamed_error_body
from gateway.wire.messages.events import MessageEvents
from gateway.wire.messages.passing import LAST, read_event
from gateway.wire.messages.request import parse_messages
from gateway.wire.sse import frame

_encode = msgspec.json.encode


class MessagesDialect:
    """Made once a request: the client's `anthropic-*` headers belong to what it asks. `counting`: its tokens only."""

    def __init__(self, headers: tuple[tuple[str, str], ...] = (), *, counting: bool = False) -> None:
        self._headers = headers
        self._counting = counting

    def parse(self, raw: bytes) -> Inference:
        return parse_messages(raw, self._headers, counting=self._counting)

    def voice(self, inference: Inference, request_id: str) -> "MessagesVoice":
        return MessagesVoice(request_id, inference.stop)


class MessagesVoice:
    """Tells a chat's answer as a message (`gateway.wire.dialect.Voice`)."""

    def __init__(self, request_id: str, stop_sequences: tuple[str, ...] = ()) -> None:
        self._request_id = request_id
        self._stop_sequences = stop_sequences
        self._events = MessageEvents(stop_sequences)

    def whole(self, body: bytes) -> bytes:
        """Raises UpstreamError for what is no chat completion."""
        try:
            return _encode(message(body, self._stop_sequences))
        except ValueError as error:
            raise UpstreamError("The upstream's answer can't be read.", code="protocol_error") from error

    def events(self, payloads: Iterable[bytes]) -> bytes:
        return b"".join(map(self._event, payloads))

    def end(self) -> bytes:
        return b"".join(map(named, self._events.end()))

    def error(self, error: ApiError) -> bytes:
        return _encode(error_body(error, self._request_id))

    def refusal(self, body: bytes, status: int) -> bytes:
        return _encode(refusal_body(body, status, self._request_id))

    def broken(self, error: ApiError) -> bytes:
        return named(error_body(error, self._request_id))

    def _event(self, payload: bytes) -> bytes:
        try:
            chunk = decode_chat_answer(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamError("The upstream's stream can't be read.", code="protocol_error") from error
        if chunk.error is not None:
            return named(streamed_error_body(payload, self._request_id))
        return b"".join(map(named, self._events.feed(chunk)))


class PassingVoice(MessagesVoice):
    """Tells a message of a provider that speaks the same API, byte for byte; its last event waits for the books."""

    _last = b""

    def whole(self, body: bytes) -> bytes:
        return body

    def events(self, payloads: Iterable[bytes]) -> bytes:
        told: list[bytes] = []
        for payload in payloads:
            event = read_event(payload)
            name = event.type if event is not None else "message"
            framed = b"event: %b\n%b" % (name.encode(), frame(payload))
            if name == LAST:
                self._last = framed
            else:
                told.append(framed)
        return b"".join(told)

    def end(self) -> bytes:
        return self._last

    def refusal(self, body: bytes, status: int) -> bytes:
        return body


def named(event: dict[str, Any]) -> bytes:
    """One server-sent event under the name of its type, as Anthropic's clients want it."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), _encode(event))
