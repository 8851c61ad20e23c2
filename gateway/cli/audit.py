"""`tollhouse audit`: who changed what, when, from where."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.options import config_option, load_config, with_database
from gateway.cli.output import print_table, table

if TYPE_CHECKING:
    from gateway.store.audit import AuditRow
    from gateway.store.database import Database


@click.command("audit")
@click.option("--tenant", help="Only what was done to this tenant.")
@click.option("--action", help="Such as key.revoke; key: all that was done to keys.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="The newest ones.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all that changed.")
@config_option
def audit(tenant: str | None, action: str | None, limit: int, as_json: bool, config_path: Path) -> None:
    """Show every act of an administrator, newest first: by command, by API, or by a program."""
    import msgspec

    from gateway.tenants.audit import list_acts
    from gateway.tenants.registry import get_tenant

    async def work(database: "Database") -> "list[AuditRow]":
        tenant_id = (await get_tenant(database, tenant)).id if tenant is not None else None
        return await list_acts(database, tenant_id=tenant_id, action=action, limit=limit)

    rows = with_database(load_config(config_path), work)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())
        return
    if not rows:
        click.echo("nothing was done yet")
        return
    shown = table("when (UTC)", "who", "from", "what", "on", "tenant")
    for row in rows:
        who = row.actor if row.actor_kind == "cli" else row.actor_kind
        shown.add_row(f"{row.at:%m-%d %H:%M:%S}", who, row.source, row.action, row.target, row.tenant or "")
    print_table(shown)
