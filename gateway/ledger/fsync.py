"""Forces files to disk from a thread of its own, once in a while, so that no request waits for a disk."""

import os
import threading
from collections.abc import Callable


class Syncer:
    """`touch` after each write. `retire` hands a file over for a last sync and its closing."""

    def __init__(self, interval_s: float, on_error: Callable[[OSError], None]) -> None:
        self._interval_s = interval_s
        self._on_error = on_error
        self._fd = -1
        self._retired: list[int] = []
        self._lock = threading.Lock()
        self._dirty = threading.Event()
        self._touched = False  # asking the event costs a call
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal fsync", daemon=True)
        self._thread.start()

    def touch(self, fd: int) -> None:
        self._fd = fd
        if not self._touched:
            self._touched = True
            self._dirty.set()

    def retire(self, fd: int) -> None:
        with self._lock:
            if self._fd == fd:
                self._fd = -1
            self._retired.append(fd)
        self._dirty.set()

    def close(self) -> None:
        """Syncs what is left and ends the thread."""
        self._stop.set()
        self._dirty.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._dirty.wait()
            self._stop.wait(self._interval_s)
            self._dirty.clear()
            self._touched = False
            self._sync()
        self._sync()

    def _sync(self) -> None:
        with self._lock:
            retired, self._retired = self._retired, []
            active = self._fd
        try:
            for fd in (*retired, active):
                if fd >= 0:
                    os.fsync(fd)
        except OSError as error:
            self._on_error(error)
        for fd in retired:
            os.close(fd)
