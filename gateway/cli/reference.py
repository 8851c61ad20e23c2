"""docs/cli.md out of the commands' own help texts: `python -m gateway.cli.reference > docs/cli.md`."""

from collections.abc import Iterator

import click

from gateway.cli.root import cli

_HEAD = """# The command line

Generated from the commands' own help by `python -m gateway.cli.reference`. State lives in `.tollhouse/`, or where
`TOLLHOUSE_HOME` says; the config is `config.toml`, or what `--config` or `TOLLHOUSE_CONFIG` name. A command ends with 0
when it did its work, 1 when it could not (the reason is on stderr), 2 when it was called wrongly.
"""


def reference() -> str:
    return "\n".join([_HEAD, *_sections(cli, "tollhouse", None)])


def _sections(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    settings = {**command.context_settings, "terminal_width": 100, "max_content_width": 100}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield f"## {context.command_path}\n\n```\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from _sections(found, inner, context)


if __name__ == "__main__":
    click.echo(reference(), nl=False)
