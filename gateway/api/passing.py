"""Endpoints that pass through to a provider: /v1/moderations, /v1/audio/*, /v1/images/generations."""

from collections.abc import Awaitable
from functools import partial
from typing import Any

from gateway.answer import Answer, StreamAnswer
from gateway.api.endpoint import endpoint
from gateway.api.incoming import Headers
from gateway.api.inference import answer
from gateway.wire.dialect import PlainDialect
from gateway.wire.inference import Endpoint, Inference
from gateway.wire.passing import parse_audio, parse_passing


def _moderate(state: Any, *given: Any) -> Awaitable[Answer | StreamAnswer]:
    """The one whose clients need not name a model: the first of its kind answers then."""
    catalog = state.house.snapshot.catalog

    def parse(raw: bytes) -> Inference:  # once it is known who asks
        return parse_passing("moderations", catalog.default("moderation"), raw)

    return answer(PlainDialect(parse), state, *given)


def _hear(endpoint: Endpoint, state: Any, raw: bytes, header: Headers, *ends: Any) -> Awaitable[Answer | StreamAnswer]:
    dialect = PlainDialect(partial(parse_audio, endpoint, header("content-type")))
    return answer(dialect, state, raw, header, *ends)


SPEECH = PlainDialect(partial(parse_passing, "audio.speech", ""))
IMAGES = PlainDialect(partial(parse_passing, "images.generations", ""))

moderations = endpoint("/v1/moderations", _moderate)
speech = endpoint("/v1/audio/speech", partial(answer, SPEECH))
images = endpoint("/v1/images/generations", partial(answer, IMAGES))
transcriptions = endpoint("/v1/audio/transcriptions", partial(_hear, "audio.transcriptions"))
translations = endpoint("/v1/audio/translations", partial(_hear, "audio.translations"))
