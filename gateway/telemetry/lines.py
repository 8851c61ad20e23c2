"""Lines on stdout, several in one write: a system call for each would cost a request more than making the line."""

import asyncio
import atexit
import sys

DELAY_S = 0.02


class Lines:
    """A line is written a moment after it was put, and before the process ends; where no event loop runs, at once.

    What kills the process on the spot may take the last moment's lines. The journal is the record; this is the news.
    """

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._due_on: asyncio.AbstractEventLoop | None = None  # which will write them
        atexit.register(self.write)

    def put(self, line: bytes) -> None:
        self._waiting.append(line)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.write()
            return
        if loop is not self._due_on:
            self._due_on = loop
            loop.call_later(DELAY_S, self.write)

    def write(self) -> None:
        """All that wait. A reader that went away costs the lines, never a request."""
        lines, self._waiting, self._due_on = self._waiting, [], None
        if not lines:
            return
        try:
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()
        except (OSError, ValueError):  # a closed pipe, a closed file
            return
