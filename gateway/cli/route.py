"""`tollhouse route`: train the router's heads, and see what it makes of a prompt."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.models import fetch
from gateway.cli.options import config_option, load_config
from gateway.cli.output import print_table, table

if TYPE_CHECKING:
    from gateway.config import Config
    from routing.types import Decision

HEADS = "heads.npz"  # in the state folder; a gateway takes it in place of the shipped heads when it starts


@click.group("route")
def route_group() -> None:
    """Train the router, and ask it for reasons."""


@route_group.command("explain")
@click.argument("prompt")
@click.option("--tier", help="As the header x-tollhouse-tier would ask.")
@click.option("--needs", multiple=True, help="A capability that the request needs, such as tools or images.")
@config_option
def explain(prompt: str, tier: str | None, needs: tuple[str, ...], config_path: Path) -> None:
    """Say where PROMPT would be sent and why, without sending it anywhere."""
    decision = asyncio.run(_decide(load_config(config_path), prompt, tier, needs))
    shown = table("", "")
    shown.show_header = False
    shown.add_row("tier", decision.tier)
    shown.add_row("models, in order", ", ".join(decision.candidates))
    shown.add_row("reason", decision.reason)
    signals = decision.signals
    if signals.task is not None:
        shown.add_row("task", f"{signals.task} {signals.task_confidence or 0:.2f}")
    for name, score in signals.scores.items():
        shown.add_row(f"{name} is good enough", f"{score:.2f}")
    print_table(shown)


@route_group.command("train")
@click.option(
    "--data", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Default: the shipped data."
)
@click.option("--seed", default=0, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Default: heads.npz in the state folder.")
@config_option
def train(data: Path | None, seed: int, out: Path | None, config_path: Path) -> None:
    """Fit the heads to the configured embedder, measure them on held-out prompts and write them."""
    from gateway.config import home

    target = out or home() / HEADS
    asyncio.run(_train(load_config(config_path), data, seed, target))
    if out is None:
        click.echo("a gateway takes it when it starts")


async def _decide(config: "Config", text: str, tier: str | None, needs: tuple[str, ...]) -> "Decision":
    from gateway.catalog import Catalog
    from gateway.config import home
    from routing.heads import load, load_shipped
    from routing.router import Router
    from routing.types import Prompt
    from semcache.embedder import Embedder

    policy = Catalog(config, {}, {}).policy
    if policy is None:
        raise click.ClickException("the config has no [tier.*], so there is nothing to route between")
    embedder = Embedder(fetch(config.embedding.model))
    try:
        await embedder.start()
        own = home() / HEADS
        heads = load(own, embedder.id) if own.exists() else load_shipped(embedder.id)
        [vector] = await embedder.embed([text])
        prompt = Prompt(
            text=text, embedding=vector, num_tokens=embedder.count_tokens([text]), needs=frozenset(needs), tier=tier
        )
        return Router(policy, heads).choose(prompt)
    finally:
        await embedder.aclose()


async def _train(config: "Config", data: Path | None, seed: int, out: Path) -> None:
    from routing.dataset import SHIPPED
    from routing.train import train as fit
    from semcache.embedder import Embedder

    embedder = Embedder(fetch(config.embedding.model))
    try:
        await embedder.start()
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(
            fit,
            data or SHIPPED,
            lambda texts: asyncio.run_coroutine_threadsafe(embedder.embed(texts), loop).result(),
            seed,
            out,
            embedder_id=embedder.id,
            command=f"tollhouse route train --seed {seed}",
            echo=click.echo,
        )
    finally:
        await embedder.aclose()
