"""The one interface of everything that can answer: the bundled engine, the bundled embedder, an HTTP provider.

Answers are OpenAI's own JSON, or in what other format the reply says, as bytes: what passes through from a provider
passes unchanged.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol, runtime_checkable

import msgspec
from msgspec.structs import replace

from gateway.upstream.formats import OPENAI, Content, Format
from gateway.wire.inference import Inference
from gateway.wire.usage import Usage


class Dispatch:
    """What has become of a request so far, however its call ends; a backend that can tell says so.

    Before it has left this process, it has cost nothing.
    """

    has_left = True
    compute_ns = 0  # of an engine of ours

    def add_compute(self, duration_ns: int) -> None:
        self.compute_ns += duration_ns

    def metered(self, usage: Usage) -> Usage:
        """With the time that it took."""
        return replace(usage, compute_us=round(self.compute_ns / 1000)) if self.compute_ns else usage


class Timeouts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Seconds that a provider has."""

    first_token_s: float  # of a stream
    idle_s: float  # between two pieces
    total_s: float


class Outbound(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One request to one backend."""

    request_id: str
    inference: Inference  # parsed and raw; the backend splices `model` (and `stream_options`) into the raw bytes
    upstream_model: str
    cache_salt: str = ""
    fairness_key: str = ""
    priority: int = 0  # lower runs first, where there is a queue of ours
    longest_answer: int | None = None  # tokens, for a request that names no max_tokens; a provider has its own idea
    timeouts: Timeouts | None = None  # the model's; None: the backend's own
    headers: tuple[tuple[str, str], ...] = ()  # the client's; a backend passes on only those it knows to be harmless
    dispatch: Dispatch = msgspec.field(default_factory=Dispatch)


NO_HEADERS: Mapping[bytes, bytes] = {}


class Reply:
    """What a backend answered, headers first.

    Either `body` is the whole answer, or `events` yields lists of SSE data payloads (bytes without "data: "), as many
    as arrived together, `b"[DONE]"` among them when the backend sent it. `aclose` frees the connection or the
    sequence, may be called at any time and more than once.
    """

    __slots__ = ("_close", "_content", "begins_with_token", "body", "events", "format", "headers", "status")

    def __init__(
        self,
        status: int,
        *,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
        body: bytes | None = None,
        events: AsyncIterator[list[bytes]] | None = None,
        close: "Closer | None" = None,
        format: Format = OPENAI,
        begins_with_token: bool = False,
    ) -> None:
        self.status = status
        self.format = format
        self.headers = headers  # lower-case names, hop-by-hop ones and content-encoding already taken out
        self.body = body
        self.events = events
        self._close = close
        self.begins_with_token = begins_with_token  # `events`: the first list holds the first token
        self._content: Content | None = None

    @property
    def content(self) -> Content:
        """What the body says of itself, read once. Raises as `Format.read`."""
        if self._content is None:
            self._content = self.format.read(self.body or b"")
        return self._content

    def with_events(self, events: AsyncIterator[list[bytes]]) -> "Reply":
        """The same answer, its stream read through `events`."""
        return Reply(self.status, headers=self.headers, events=events, close=self.aclose, format=self.format)

    async def aclose(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            await close()


class Closer(Protocol):
    async def __call__(self) -> None: ...


class Backend(Protocol):
    """`send` returns at the answer's headers. Cancelling it, or closing the reply, stops the work.

    Raises UpstreamFailure (gateway.upstream.errors) when no answer came, or an ApiError when the request itself can't
    be served here (the bundled engine's context is too short, say).
    """

    name: str

    async def send(self, outbound: Outbound) -> Reply: ...

    async def aclose(self) -> None: ...


@runtime_checkable
class Checkable(Protocol):
    """A backend that can say whether it is well at no cost. Raises UpstreamFailure if it is not."""

    async def check(self) -> None: ...


@runtime_checkable
class CountsTokens(Protocol):
    """A backend that can say how many tokens a chat's prompt has. Raises as `send` does."""

    async def count_tokens(self, outbound: Outbound) -> int: ...


@runtime_checkable
class Tokenizes(Protocol):
    """A backend that can tell the tokens themselves."""

    @property
    def max_model_len(self) -> int: ...

    async def tokenize(self, outbound: Outbound, *, special: bool) -> list[int]:
        """Of a chat's prompt or of one text; `special`: with what the model wants in front of it. Raises as `send`."""

    async def detokenize(self, token_ids: list[int]) -> str:
        """Raises InvalidRequestError for tokens that do not exist."""

    def token_text(self, token_id: int) -> str: ...
