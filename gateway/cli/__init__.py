"""The `tollhouse` command. Thin: every command calls functions that the gateway itself uses. Knows no SQL."""


def main() -> None:
    from gateway.cli.root import cli

    cli(prog_name="tollhouse")
