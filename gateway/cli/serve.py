"""`tollhouse serve`: checks what a start needs, says it in plain words, and hands over to the server."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.init import demo_key
from gateway.cli.models import configured, fetch
from gateway.cli.options import config_option, load_config

if TYPE_CHECKING:
    from gateway.config import Config


@click.command("serve")
@config_option
@click.option("--host", help="The address to listen at. Default: [server] host.")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes a free one. Default: [server] port.")
def serve(config_path: Path, host: str | None, port: int | None) -> None:
    """Run the gateway until SIGTERM or Ctrl-C; running answers may then finish (shutdown_grace_s)."""
    from gateway.cli.server import bound_port, run

    config = load_config(config_path)
    for source in configured(config).values():
        fetch(source)
    host = host or config.server.host
    port = bound_port(host, config.server.port if port is None else port)
    run(
        config_path,
        host,
        port,
        config.server.shutdown_grace_s,
        lambda: _say_what_to_try(host, port, model_to_try(config)),
    )


def model_to_try(config: "Config") -> str:
    """One that answers chats: without tiers there is no `auto`, and a glob stands for names that we don't know."""
    chats = sorted((model for model in config.model if model.kind == "chat"), key=lambda model: model.is_glob)
    return "auto" if config.tier or not chats else chats[0].name


def _say_what_to_try(host: str, port: int, model: str) -> None:
    shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}"
    key = demo_key() or "$TOLLHOUSE_KEY"
    message = '{"role": "user", "content": "What is a toll house?"}'
    click.echo(
        f"""
Tollhouse is at {url}. Try:

  curl {url}/v1/chat/completions -i -H "Authorization: Bearer {key}" \\
       -d '{{"model": "{model}", "temperature": 0, "max_tokens": 100, "messages": [{message}]}}'

  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="{key}")
  client.chat.completions.create(model="{model}", max_tokens=100, messages=[{message}])

  {url}/dashboard   what was spent and saved (asks for the key); as a table: tollhouse costs
""",
        err=True,
    )
