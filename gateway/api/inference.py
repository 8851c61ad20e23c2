"""POST /v1/chat/completions, /v1/completions and /v1/embeddings: the body in, the pipeline's answer out."""

from collections.abc import Awaitable
from functools import partial
from typing import Any

from litestar.types import Receive

from gateway.answer import Answer, StreamAnswer
from gateway.api.endpoint import endpoint
from gateway.api.incoming import Headers
from gateway.heartbeat import Heartbeat
from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completion
from gateway.wire.dialect import Dialect, PlainDialect
from gateway.wire.embeddings import parse_embedding

CHAT = PlainDialect(parse_chat)
COMPLETIONS = PlainDialect(parse_completion)
EMBEDDINGS = PlainDialect(parse_embedding)


def answer(
    dialect: Dialect, state: Any, raw: bytes, header: Headers, receive: Receive, heartbeat: Heartbeat
) -> Awaitable[Answer | StreamAnswer]:
    """One request of any dialect."""
    return state.pipeline.answer(dialect, raw, header, receive, heartbeat=heartbeat)  # type: ignore[no-any-return]


chat_completions = endpoint("/v1/chat/completions", partial(answer, CHAT))
completions = endpoint("/v1/completions", partial(answer, COMPLETIONS))
embeddings = endpoint("/v1/embeddings", partial(answer, EMBEDDINGS))
