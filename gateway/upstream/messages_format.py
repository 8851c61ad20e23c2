"""Anthropic's messages, passing from a provider to a client of the same API (`gateway.upstream.formats.Format`)."""

import re
from collections.abc import Iterable

from gateway.upstream.formats import Content, Reader
from gateway.wire.assemble import assemble
from gateway.wire.dialect import Voice
from gateway.wire.inference import Inference
from gateway.wire.messages.completion import CompletionChunks, chat_completion
from gateway.wire.messages.dialect import PassingVoice
from gateway.wire.messages.passing import LAST, Body, MessagesReader, decode_body, read_body, read_event

_FINISHED = re.compile(rb'"stop_reason"\s*:\s*"')
_LAST = LAST.encode()


class MessagesFormat:
    def voice(self, request_id: str) -> Voice | None:
        return PassingVoice(request_id)

    def reader(self, inference: Inference, *, collect: bool) -> Reader:
        return MessagesReader(collect=collect)

    def is_prelude(self, payload: bytes) -> bool:
        event = read_event(payload)
        return event is not None and event.opens

    def find_end(self, payloads: list[bytes]) -> int | None:
        return next((index for index, payload in enumerate(payloads) if _is_last(payload)), None)

    def is_finish(self, payload: bytes) -> bool:
        return _FINISHED.search(payload) is not None

    def is_error(self, payload: bytes) -> bool:
        return decode_body(payload).error is not None

    def read(self, body: bytes) -> Content:
        said = decode_body(body)
        usage = said.usage.counted() if said.usage is not None else None
        if said.error is not None:
            return Content("error", usage)
        return Content("nothing" if said.stop_reason is None else "answer", usage)

    def text_length(self, body: bytes) -> int:
        read = read_body(body) or Body()
        return sum(len(block.text.encode("utf-8", "replace")) for block in read.content or ())

    def stored(self, body: bytes) -> bytes | None:
        """Plain text only: a thought's signature, say, has no place in a chat."""
        read = read_body(body)
        if read is None or any(block.type != "text" for block in read.content or ()):
            return None
        try:
            return chat_completion(body)
        except ValueError:
            return None

    def assemble(self, payloads: Iterable[bytes], num_choices: int) -> bytes | None:
        payloads = list(payloads)
        events = [event for payload in payloads if (event := read_event(payload)) is not None]
        if any(event.content_block is not None and event.content_block.type != "text" for event in events):
            return None
        chunks = CompletionChunks(null_usage=False)
        try:
            return assemble((chunk for payload in payloads for chunk in chunks.feed(payload)), num_choices=num_choices)
        except ValueError:
            return None


def _is_last(payload: bytes) -> bool:
    if _LAST not in payload:
        return False
    event = read_event(payload)
    return event is not None and event.type == LAST


MESSAGES = MessagesFormat()
