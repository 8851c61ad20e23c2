"""One response that runs in the background: its task, its events so far, and those who listen to them."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway.answer import Answer, StreamAnswer
from gateway.errors import ApiError
from gateway.responses.types import StoredResponse
from gateway.wire.responses_api.voice import ResponsesVoice, error_event


class Run:
    def __init__(self, stored: StoredResponse, voice: ResponsesVoice, *, streams: bool) -> None:
        """`stored`: as it begins. `streams`: whether anybody may listen."""
        self.stored = stored
        self.voice = voice
        self.streams = streams
        self.over = False
        self.task: asyncio.Task[Answer | None] | None = None
        self._events: list[bytes] = []  # each under its sequence number
        self._news = asyncio.Event()
        self._refused = False
        self._stopping = False
        self._why: ApiError | None = None

    @property
    def current(self) -> StoredResponse:
        """As it stands at this moment."""
        response = self.voice.response
        return replace(self.stored, status=response["status"], body=msgspec.json.encode(response))

    def begin(self) -> None:
        """It is admitted."""
        if self.streams:
            self._add(self.voice.begin())
        else:
            self.voice.start()

    async def hear(self, told: Answer | StreamAnswer) -> None:
        """Takes in what the pipeline says, to its end, as a client that never leaves."""
        await told({}, nobody_leaves, self._take)
        if self.streams and self._refused:
            self._add(self.voice.verdict())

    async def _take(self, message: dict[str, Any]) -> None:
        """ASGI's `send`."""
        if message["type"] == "http.response.start":
            self._refused = message["status"] >= 300
        elif not self._refused:
            self._add(message["body"])

    @property
    def num_bytes(self) -> int:
        """Of its events."""
        return sum(map(len, self._events))

    @property
    def num_events(self) -> int:
        return len(self._events)

    async def follow(self, after: int = -1) -> AsyncGenerator[bytes, None]:
        """The events whose sequence number is above `after`, as they come, until the response has ended."""
        position = after + 1
        while True:
            news = self._news
            if position < len(self._events):
                piece = b"".join(self._events[position:])
                position = len(self._events)
                yield piece
            elif self.over:
                return
            else:
                await news.wait()

    def stop(self, why: ApiError | None = None) -> None:
        """Cancels it, unless it has ended; with a reason, it has failed."""
        if self.task is not None and not self._stopping and not self.voice.over:
            self._stopping = True
            self._why = why
            self.task.cancel()

    async def halt(self) -> None:
        """Stops it, and waits until it is stored; that goes on if the waiting is cancelled."""
        self.stop()
        if self.task is not None:
            await asyncio.wait({self.task})

    def stopped(self) -> None:
        """The cancellation has arrived; the pipeline may have told it as a failure."""
        if self._why is not None:
            self._add(self.voice.broken(self._why))
        else:
            self.voice.cut("cancelled")

    def fail(self, error: ApiError) -> None:
        if not self.voice.over:
            self._add(self.voice.broken(error))

    def close(self) -> None:
        """It is stored, and nothing more will be heard."""
        self.over = True
        self._tell()

    def _add(self, piece: bytes) -> None:
        """Whole events, and comments, which nobody needs later."""
        events = [block + b"\n\n" for block in piece.split(b"\n\n") if block.startswith(b"event: ")]
        if events and self.streams:
            self._events += events
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


async def nobody_leaves() -> Any:
    """ASGI's `receive`: what is heard of a client that isn't there."""
    await asyncio.Event().wait()


class Listening:
    """A run as the source of a stream; whoever leaves it leaves the run alone."""

    def __init__(self, run: Run, after: int = -1) -> None:
        self._run = run
        self._after = after

    def events(self) -> AsyncGenerator[bytes, None]:
        return self._run.follow(self._after)

    def broken(self, error: ApiError) -> bytes:
        """The run itself is not: it can be listened to again."""
        return error_event(error, self._run.num_events)

    async def close(self) -> None:
        pass
