"""A bar on standard error while models load, where somebody looks at it: on a terminal. Knows no engine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn


@contextmanager
def loading_bars(console: Console | None = None) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Gives what makes a bar by name; the bar is told bytes done and bytes in all, from any thread."""
    console = console or Console(stderr=True)
    columns = TextColumn("loading {task.description}"), BarColumn(), DownloadColumn(binary_units=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def bar(name: str) -> Callable[[int, int], None]:
            task = progress.add_task(name, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield bar
