"""Who looks at a terminal sees models load; a log file gets nothing of it."""

import io

from rich.console import Console

from gateway.loading_bar import loading_bars


def shown(*, terminal: bool) -> str:
    output = io.StringIO()
    with loading_bars(Console(file=output, force_terminal=terminal, width=100)) as bar:
        report = bar("smollm2")
        report(50 << 20, 100 << 20)
    return output.getvalue()


def test_a_terminal_shows_how_much_of_which_model_is_loaded() -> None:
    assert "loading smollm2" in shown(terminal=True)
    assert "50.0/100.0 MiB" in shown(terminal=True)


def test_anything_else_shows_nothing() -> None:
    assert shown(terminal=False) == ""
