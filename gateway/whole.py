"""A whole answer as its client wants to read it: as it came, as a stream, or within one that has begun already."""

import logging

import msgspec

from gateway.answer import EVENT_STREAM, JSON, Answer, Headers, clean_headers
from gateway.errors import UpstreamError, UpstreamRefusal
from gateway.passage import Passage
from gateway.upstream.types import Reply
from gateway.wire.completeness import is_error, reason_in
from gateway.wire.replay import replay

log = logging.getLogger("tollhouse.pipeline")


def has_begun(passage: Passage) -> bool:
    """The stream's headers have left while its client waited: whatever comes is told within it. Final when asked."""
    if passage.heartbeat is None:
        return False
    passage.heartbeat.stop()
    return passage.heartbeat.opened


def own_headers(reply: Reply) -> tuple[tuple[bytes, bytes], Headers]:
    """The content-type that a reply came with, and its other headers."""
    others = dict(clean_headers(reply.headers.items()))
    content_type = others.pop(b"content-type", None)
    return JSON if content_type is None else (b"content-type", content_type), list(others.items())


def as_wanted(passage: Passage, reply: Reply, body: bytes, headers: Headers) -> Answer:
    """The body as it came; as a stream for a client that asked for one and an upstream that can't."""
    voice, late = passage.voice, has_begun(passage)
    content_type, others = own_headers(reply)
    headers = [*others, *headers]
    if reply.status >= 300 and not is_error(body):
        reason = reason_in(body)
        message = f"The upstream answered with HTTP {reply.status}{f': {reason}' if reason else ' and no reason.'}"
        error = UpstreamError(message, code=f"http_{reply.status}")
        error.status = reply.status  # which some APIs tell in the body as well
        told = voice.broken(error) if late else voice.error(error)
        return Answer(told, status=reply.status, headers=headers, content_type=EVENT_STREAM if late else JSON)
    if passage.inference.stream and reply.status < 300:
        try:
            *payloads, _done = replay(body, include_usage=passage.inference.include_usage)
        except ValueError:
            log.warning("request %s: a stream was asked for, and what came is neither one nor an answer", passage.id)
        else:
            told = voice.events(payloads) + voice.end()
            return Answer(told, content_type=EVENT_STREAM, headers=headers)
    if late:
        return Answer(voice.broken(_in_words(reply, body)), content_type=EVENT_STREAM)
    body = voice.whole(body) if reply.status < 300 else voice.refusal(body, reply.status)
    return Answer(body, status=reply.status, headers=headers, content_type=content_type)


def _in_words(reply: Reply, body: bytes) -> UpstreamError:
    if reply.status >= 300:
        return UpstreamRefusal(msgspec.json.decode(body))
    return UpstreamError("The upstream sent neither a stream nor an answer.", code="protocol_error")
