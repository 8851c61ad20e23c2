"""A body that is no JSON on its way to the client, piece by piece: audio, and texts of transcriptions."""

from collections.abc import AsyncGenerator

from gateway.answer import StreamAnswer
from gateway.errors import ApiError
from gateway.headers import describe
from gateway.house import House
from gateway.passage import Passage
from gateway.relay import Relay
from gateway.upstream.attempts import Served
from gateway.whole import own_headers


def byte_stream(passage: Passage, served: Served, house: House) -> StreamAnswer:
    content_type, others = own_headers(served.reply)
    headers = [*others, *describe(passage)]
    return StreamAnswer(ByteRelay(passage, served, house), headers, house.doors, content_type=content_type)


class BrokenOff(Exception):
    """The upstream's answer, or ours, ended too early: so must the connection, for nothing in the body can say so."""


class ByteRelay(Relay):
    async def events(self) -> AsyncGenerator[bytes, None]:
        try:
            async for pieces in self._payloads():
                self._passage.note_first_token()
                for piece in self._reader.feed(pieces):
                    yield piece
            self._settle("ok", 200, None)
        except Exception as error:
            self.broken(error)

    def broken(self, error: Exception) -> bytes:
        super().broken(error)
        code = error.code if isinstance(error, ApiError) else None
        raise BrokenOff(f"request {self._passage.id} broke off: {code or error}") from error
