"""A TCP relay before Redis that holds answers back, or cuts one off: Redis has done its work by then."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Line:
    def __init__(self) -> None:
        self.url = ""
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.has_asked = asyncio.Event()
        self.cuts_next = False
        self.num_connections = 0

    async def relay(self, from_us: asyncio.StreamReader, to_us: asyncio.StreamWriter, redis_port: int) -> None:
        self.num_connections += 1
        from_redis, to_redis = await asyncio.open_connection("127.0.0.1", redis_port)
        with suppress(OSError):
            while asked := await from_us.read(2**16):
                to_redis.write(asked)
                answer = await from_redis.read(2**16)
                self.has_asked.set()
                await self.is_open.wait()
                if self.cuts_next:
                    self.cuts_next = False
                    break
                to_us.write(answer)
        to_redis.close()
        to_us.close()

    def hold(self) -> None:
        self.has_asked.clear()
        self.is_open.clear()


@asynccontextmanager
async def line_before(redis_url: str) -> AsyncIterator[Line]:
    made = Line()
    port = int(redis_url.rpartition(":")[2].partition("/")[0])
    async with await asyncio.start_server(
        lambda reader, writer: made.relay(reader, writer, port), "127.0.0.1", 0
    ) as server:
        made.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        yield made
