"""Python's garbage collector, out of the way while many objects are made that stay. Knows no model."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """For the whole process, and not longer than whoever was first: it only ever switches on what it found on."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
