"""The tree of commands. Modules behind them import what is heavy only when they run, so that --help is instant."""

from typing import Any

import click

from gateway.cli.audit import audit
from gateway.cli.budgets import budgets_group
from gateway.cli.cache import cache_group
from gateway.cli.config import config_group
from gateway.cli.costs import costs
from gateway.cli.db import db_group
from gateway.cli.failures import is_expected
from gateway.cli.init import init
from gateway.cli.keys import keys_group
from gateway.cli.models import models_group
from gateway.cli.price_import import import_
from gateway.cli.prices import prices_group
from gateway.cli.route import route_group
from gateway.cli.serve import serve
from gateway.cli.teams import teams_group
from gateway.cli.tenants import tenants_group


class Cli(click.Group):
    """Tells what may go wrong outside of our code in one line, with exit code 1; a bug keeps its traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if is_expected(error):
                raise click.ClickException(str(error) or type(error).__name__) from error
            raise


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tollhouse")
def cli() -> None:
    """A drop-in OpenAI gateway that keeps the books."""


for command in (
    serve,
    init,
    models_group,
    tenants_group,
    teams_group,
    keys_group,
    budgets_group,
    prices_group,
    costs,
    cache_group,
    audit,
    config_group,
    route_group,
    db_group,
):
    cli.add_command(command)
prices_group.add_command(import_)
