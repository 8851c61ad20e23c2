"""Runs the application under granian inside this process: one event loop, one process to signal, nothing to orphan."""

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server
from litestar import Litestar

from gateway.doors import Doors
from gateway.telemetry.log import lines

log = logging.getLogger("tollhouse.server")

_BACKLOG = 4096
_MAX_REQUESTS = 65_536  # granian holds back more at a time; limits are ours to set, not the server's
_MAX_BUFFER_BYTES = 128 * 1024  # of a connection: heads that are longer are refused (431); it is held for each one
_PATIENCE_S = 30.0
_LAST_WORDS_S = 2.0  # for answers to end after their engine and connections were closed


def bound_port(host: str, port: int) -> int:
    """The port, or a free one for 0. Raises OSError if somebody listens there: granian would share the port with it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OSError(f"cannot listen at {host} port {port}: {error.strerror or error}") from error
        return int(probe.getsockname()[1])


def run(config_path: Path, host: str, port: int, grace_s: float, on_ready: Callable[[], None]) -> None:
    """Serves until SIGTERM or SIGINT. Raises whatever keeps the parts from starting."""
    from gateway.app import create_app

    app = create_app(config_path)
    main = serve(app, host, port, grace_s, on_ready)
    try:
        import uvloop
    except ImportError:  # not made for Windows
        asyncio.run(main)
    else:
        uvloop.run(main)


async def serve(app: Litestar, host: str, port: int, grace_s: float, on_ready: Callable[[], None]) -> None:
    """Until the first signal; a second one ends the process at once."""
    stop = _on_signals()
    try:
        async with app.lifespan():
            serving = await _serve_until(stop, app, host, port, grace_s, on_ready)
    except BaseExceptionGroup as group:  # the framework runs its lifespan in a task group, even for one error
        raise _alone(group) from None
    if not serving.done():
        await asyncio.wait({serving}, timeout=_LAST_WORDS_S)
    if serving.done():
        serving.result()  # else it ends with the loop: cancelled here, it would trip over its own last callback


def _on_signals() -> asyncio.Event:
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set():
            log.warning("a second signal: ending at once; what was under way is booked at the next start")
            logging.shutdown()
            lines.write()
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    return stop


async def _serve_until(
    stop: asyncio.Event, app: Litestar, host: str, port: int, grace_s: float, on_ready: Callable[[], None]
) -> "asyncio.Task[None]":
    """Returns the server's task, which is not done where answers outlived the grace."""
    server = Server(
        app,
        address=host,
        port=port,
        interface=Interfaces.ASGINL,  # the lifespan is ours, so that a failed start reaches the caller
        http=HTTPModes.http1,
        websockets=False,
        backlog=_BACKLOG,
        backpressure=_MAX_REQUESTS,
        http1_settings=_http1(app.state.get("patience_s") or _PATIENCE_S),
        log_enabled=False,
    )
    serving = asyncio.create_task(server.serve(), name="server")
    stopped = asyncio.create_task(stop.wait(), name="stop-signal")
    await asyncio.sleep(0)  # lets the server bind
    on_ready()
    await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not serving.done():
        await _drain(server, serving, app.state.get("doors") or Doors(), grace_s)
    return serving


def _http1(patience_s: float) -> HTTP1Settings:
    """A head has so long to come, from the connection's opening or the answer before: so idle ones are closed, too."""
    return HTTP1Settings(header_read_timeout=int(patience_s * 1000), max_buffer_size=_MAX_BUFFER_BYTES)


async def _drain(server: Server, serving: "asyncio.Task[None]", doors: Doors, grace_s: float) -> None:
    """Running answers finish; while they do, new requests are told to go elsewhere, and load balancers see why.

    What is not finished after the grace is cut off, and told so.
    """
    log.info("stopping: no new requests; running answers may take %g s to finish", grace_s)
    began = time.monotonic()
    doors.close()
    await doors.emptied(grace_s)
    server.stop()  # type: ignore[no-untyped-call]
    await asyncio.wait({serving}, timeout=max(0.0, began + grace_s - time.monotonic()))
    if not serving.done():
        num_cut = doors.clear()
        log.warning("%d answers did not finish within %g s and are cut off", num_cut, grace_s)
        await asyncio.wait({serving}, timeout=_LAST_WORDS_S)


def _alone(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
