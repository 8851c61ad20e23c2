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
    """The content-type that a reply came with, and its other headers, each once."""
    theirs = clean_headers(dict(reply.headers))
    content_type = theirs.pop(b"content-type", None)
    return JSON if content_type is None else (b"content-type", content_type), [*theirs.items()]


def as_wanted(passage: Passage, reply: Reply, body: bytes) -> Answer:
    """The body as it came; as a stream for a client that asked for one and an upstream that can't.

    Raises UpstreamError for what the client's API can't tell.
    """
    content_type, headers = own_headers(reply)
    if reply.status >= 300:
        return _refusal(passage, reply, body, headers, content_type)
    if passage.inference.stream:
        return _as_stream(passage, reply, body, headers, content_type)
    return Answer(passage.voice.whole(body), reply.status, headers, content_type)


def _refusal(
    passage: Passage, reply: Reply, body: bytes, headers: Headers, content_type: tuple[bytes, bytes]
) -> Answer:
    voice, late = passage.voice, has_begun(passage)
    if not is_error(body):
        reason = reason_in(body)
        message = f"The upstream answered with HTTP {reply.status}{f': {reason}' if reason else ' and no reason.'}"
        error = UpstreamError(message, code=f"http_{reply.status}")
        error.status = reply.status  # which some APIs tell in the body as well
        told = voice.broken(error) if late else voice.error(error)
        return Answer(told, reply.status, headers, EVENT_STREAM if late else JSON)
    if late:
        return Answer(voice.broken(UpstreamRefusal(msgspec.json.decode(body))), content_type=EVENT_STREAM)
    return Answer(voice.refusal(body, reply.status), reply.status, headers, content_type)


def _as_stream(
    passage: Passage, reply: Reply, body: bytes, headers: Headers, content_type: tuple[bytes, bytes]
) -> Answer:
    voice, late = passage.voice, has_begun(passage)
    try:
        *payloads, _done = replay(body, include_usage=passage.inference.include_usage)
    except ValueError:
        log.warning("request %s: a stream was asked for, and what came is neither one nor an answer", passage.id)
    else:
        return Answer(voice.events(payloads) + voice.end(), headers=headers, content_type=EVENT_STREAM)
    if late:
        error = UpstreamError("The upstream sent neither a stream nor an answer.", code="protocol_error")
        return Answer(voice.broken(error), content_type=EVENT_STREAM)
    return Answer(voice.whole(body), reply.status, headers, content_type)
