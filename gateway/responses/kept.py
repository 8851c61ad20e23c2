"""A response that its client waits for, stored before its last byte leaves."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from gateway.answer import Source
from gateway.errors import ApiError
from gateway.wire.responses_api.voice import ResponsesVoice


class KeptStream:
    """A stream whose last event waits until the response is stored; whoever leaves before leaves a cancelled one."""

    def __init__(self, source: Source, voice: ResponsesVoice, keep: Callable[[], Awaitable[None]]) -> None:
        self._source = source
        self._voice = voice
        self._keep = keep
        self._kept = False

    async def events(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._source.events()) as pieces:
            async for piece in pieces:
                if self._voice.over:
                    await self._keep_once()
                yield piece

    def broken(self, error: ApiError) -> bytes:
        return self._source.broken(error)

    async def close(self) -> None:
        try:
            await self._source.close()
        finally:
            if self._voice.begun:
                if not self._voice.over:
                    self._voice.cut("cancelled")
                await self._keep_once()

    async def _keep_once(self) -> None:
        if not self._kept:
            self._kept = True
            await self._keep()
