"""The connections to one origin: a bounded number, the most recently used first, waiting callers in order."""

import asyncio
import ssl
from collections import deque
from time import monotonic

import httpx

from gateway.upstream.address_guard import Guard, resolve
from gateway.upstream.connection import MAX_HEAD_BYTES, Connection


class Pool:
    def __init__(
        self,
        host: str,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None,
        max_connections: int,
        max_idle: int,
        idle_s: float,
        max_head_bytes: int = MAX_HEAD_BYTES,
        guard: Guard = "not-metadata",
    ) -> None:
        self.num_connections = 0  # open or being opened
        self._host = host
        self._port = port
        self._ssl_context = ssl_context
        self._max_connections = max_connections
        self._max_idle = max_idle
        self._idle_s = idle_s
        self._max_head_bytes = max_head_bytes
        self._guard: Guard = guard
        self._connections: set[Connection] = set()
        self._idle: deque[Connection] = deque()  # the most recently used at the right
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()  # None: a place is free
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self._emptied: asyncio.Future[None] | None = None

    @property
    def num_idle(self) -> int:
        return len(self._idle)

    def idle(self) -> Connection | None:
        """A connection that can be used at once."""
        while self._idle:
            if (connection := self._idle.pop()).usable:
                return connection
        return None

    async def acquire(self, wait_s: float | None, connect_s: float | None) -> Connection:
        """A connection where none is idle: a new one, else the next that falls free.

        Raises httpx.PoolTimeout, ConnectTimeout and ConnectError.
        """
        if self._closed:
            raise httpx.ConnectError("the transport is closed")
        if self.num_connections < self._max_connections:
            self.num_connections += 1
        else:
            handed = await self._wait(wait_s)
            if handed is not None:
                return handed
        return await self._connect(connect_s)

    def close_idle(self) -> None:
        """For when one of them turned out dead: the server was restarted, and the others are as old."""
        while self._idle:
            self._idle.pop().abort()

    async def aclose(self) -> None:
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(httpx.ConnectError("the transport is closed"))
        self._idle.clear()
        for connection in list(self._connections):
            connection.abort()
        if self._connections:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied

    async def _wait(self, wait_s: float | None) -> Connection | None:
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(wait_s):
                return await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._give_back(waiter.result())  # it came in the very moment we gave up
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            if isinstance(error, TimeoutError):
                raise httpx.PoolTimeout(f"all {self._max_connections} connections are busy") from error
            raise

    def _give_back(self, handed: Connection | None) -> None:
        if handed is not None:
            self._release(handed)
        else:
            self._free_place()

    async def _connect(self, connect_s: float | None) -> Connection:
        """Opens a connection in a place that is already counted."""
        try:
            async with asyncio.timeout(connect_s):
                connection = await self._open()
            if not connection.usable:
                raise ConnectionResetError("closed as soon as it was open")
        except BaseException as error:
            self._free_place()
            if isinstance(error, TimeoutError):
                raise httpx.ConnectTimeout(f"no connection within {connect_s} s") from error
            if isinstance(error, OSError):  # TLS and name resolution among them
                raise httpx.ConnectError(str(error)) from error
            raise
        self._connections.add(connection)
        return connection

    async def _open(self) -> Connection:
        """To the first of the host's addresses that takes it; all were checked, and no other name is looked up."""
        loop = asyncio.get_running_loop()
        server_hostname = self._host if self._ssl_context is not None else None
        refused: OSError | None = None
        for address in await resolve(self._host, self._port, self._guard):
            try:
                _, connection = await loop.create_connection(
                    self._new_connection, address, self._port, ssl=self._ssl_context, server_hostname=server_hostname
                )
                return connection
            except OSError as error:
                refused = error
        raise refused or OSError(f"{self._host} has no address")

    def _new_connection(self) -> Connection:
        return Connection(self._release, self._lost, self._max_head_bytes)

    def _release(self, connection: Connection) -> None:
        """Hands a free connection to whoever waits longest, else keeps it."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        if self._closed or len(self._idle) >= self._max_idle:
            connection.abort()
            return
        connection.idle_since = monotonic()
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(self._idle_s, self._sweep)

    def _lost(self, connection: Connection) -> None:
        if connection not in self._connections:
            return  # it broke while it was being opened, and `_connect` says so
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._free_place()
        if self._emptied is not None and not self._connections and not self._emptied.done():
            self._emptied.set_result(None)

    def _free_place(self) -> None:
        """Passes the place of a closed connection on to whoever waits longest."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.num_connections -= 1

    def _sweep(self) -> None:
        """Closes what has been idle for too long, and looks again when the next one is due."""
        self._sweeper = None
        while self._idle and (due_s := self._idle[0].idle_since + self._idle_s - monotonic()) <= 0:
            self._idle.popleft().abort()
        if self._idle:
            self._sweeper = asyncio.get_running_loop().call_later(due_s, self._sweep)
