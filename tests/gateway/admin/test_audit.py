"""Every act leaves its trace, whoever gives it; and no secret gets into any table."""

import asyncio
import getpass
import socket
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from sqlalchemy import MetaData, select

from gateway.api.admin.openapi import document
from gateway.cli.output import console
from gateway.cli.root import cli
from gateway.store.database import Database
from gateway.tenants.audit import acting, list_acts
from tests.gateway.admin.conftest import ADMIN_KEY, CONFIG, Admin

HOOK = "https://hooks.example.com/services/secret-path"
PRICE = {"model": "big", "input_usd_per_mtok": 1, "output_usd_per_mtok": 2}
BUDGET = {"tenant": "ACME", "period": "day", "amount_usd": 1, "webhook_url": HOOK}

# What is done by API, in order; each path as the document has it, and the action that it leaves.
ACTS: list[tuple[str, str, Any, str]] = [
    ("post", "/admin/tenants", {"name": "ACME"}, "tenant.create"),
    ("patch", "/admin/tenants/{tenant}", {"tokens_per_minute": 5}, "tenant.change"),
    ("post", "/admin/tenants/{tenant}/teams", {"name": "lab"}, "team.create"),
    ("patch", "/admin/tenants/{tenant}/teams/{team}", {"disabled": False}, "team.change"),
    ("post", "/admin/keys", {"tenant": "ACME", "name": "KEY", "team": "lab", "models": ["small"]}, "key.create"),
    ("patch", "/admin/keys/{key}", {"ip_ranges": ["10.0.0.0/8"]}, "key.change"),
    ("post", "/admin/keys/{key}/rotate", {}, "key.rotate"),
    ("delete", "/admin/keys/{key}", None, "key.revoke"),
    ("put", "/admin/budgets", BUDGET, "budget.set"),
    ("delete", "/admin/budgets", None, "budget.remove"),
    ("post", "/admin/prices", PRICE, "price.set"),
    ("post", "/admin/cache/clear", {"tenant": "ACME"}, "cache.clear"),
    ("delete", "/admin/cache/entries/{entry_id}", None, "cache.invalidate"),
    ("patch", "/admin/tenants/{tenant}", {"disabled": True}, "tenant.change"),
    ("post", "/admin/tenants/{tenant}/erase", None, "tenant.erase"),
    ("delete", "/admin/tenants/{tenant}", None, "tenant.delete"),
]
CHANGES_NOTHING = {("post", "/admin/config/check")}


def test_every_operation_that_changes_something_is_among_the_acts() -> None:
    operations = {
        (method, path) for path, methods in document()["paths"].items() for method in methods if method != "get"
    }
    assert operations - CHANGES_NOTHING == {(method, path) for method, path, _, _ in ACTS}


@pytest.mark.anyio
async def test_every_act_by_api_is_noted_once(admin: Admin) -> None:
    names = {"ACME": admin.acme, "KEY": f"key-of-{admin.acme}"}
    places = {"tenant": admin.acme, "team": "lab", "key": names["KEY"], "entry_id": "0123abcd"}
    newest = (await list_acts(admin.house.database, limit=1))[:1]
    secrets = []
    for method, path, body, _ in ACTS:
        sent = (
            {name: names.get(value, value) if isinstance(value, str) else value for name, value in body.items()}
            if body
            else body
        )
        query = f"?tenant={admin.acme}&period=day" if (method, path) == ("delete", "/admin/budgets") else ""
        answer = await admin(method.upper(), path.format(**places) + query, sent)
        secrets += [answer["secret"]] if answer and "secret" in answer else []
    rows = []
    for row in await list_acts(admin.house.database, limit=100):
        if newest and row.id == newest[0].id:
            break
        rows.append(row)
    assert [row.action for row in reversed(rows)] == [action for *_, action in ACTS]
    assert {(row.actor_kind, row.source) for row in rows} == {("admin-key", "198.51.100.7")}
    by_action = {row.action: row for row in rows}
    assert by_action["key.change"].before["scope"]["ip_ranges"] is None  # type: ignore[index]
    assert by_action["key.change"].after["scope"]["ip_ranges"] == ["10.0.0.0/8"]  # type: ignore[index]
    assert by_action["tenant.delete"].after is None
    assert len(secrets) == 2
    everything = await dump(admin.house.database)
    for secret in (*(secret[10:] for secret in secrets), ADMIN_KEY, "header-secret"):
        assert secret not in everything


# By command line.

READS = {
    "tenants list", "teams list", "keys list", "keys show", "prices list", "budgets list", "costs", "audit",
    "config check", "config show", "models list", "route explain", "db upgrade", "serve",
}  # fmt: skip
ELSEWHERE = {"models pull", "route train"}  # change files, not the database
BY_THE_SAME_FUNCTION = {"prices import"}  # as prices set
COMMANDS: list[tuple[str, str, str]] = [
    ("tenants add acme", "", "tenant.create"),
    ("tenants set acme", "--tokens-per-minute 5", "tenant.change"),
    ("teams add lab", "--tenant acme", "team.create"),
    ("teams set lab", "--tenant acme --requests-per-minute 7", "team.change"),
    ("teams disable lab", "--tenant acme", "team.disable"),
    ("teams enable lab", "--tenant acme", "team.enable"),
    ("keys create", "--tenant acme --name ci --team lab --ip 10.0.0.0/8 --expires 30d", "key.create"),
    ("keys set ci", "--models small --expires none", "key.change"),
    ("keys rotate ci", "--overlap 5m", "key.rotate"),
    ("keys revoke ci", "", "key.revoke"),
    ("keys restore ci", "", "key.restore"),
    ("budgets set acme 1", f"--per day --webhook {HOOK}", "budget.set"),
    ("budgets remove acme", "--per day", "budget.remove"),
    ("prices set big", "--input 1 --output 2", "price.set"),
    ("cache clear", "--tenant acme", "cache.clear"),
    ("cache invalidate 0123abcd", "", "cache.invalidate"),
    ("tenants disable acme", "", "tenant.disable"),
    ("tenants enable acme", "", "tenant.enable"),
    ("tenants erase acme", "--yes", "tenant.erase"),
    ("tenants disable acme", "", "tenant.disable"),
    ("tenants delete acme", "--yes", "tenant.delete"),
]


def leaves(command: click.Command, name: str = "") -> set[str]:
    if not isinstance(command, click.Group):
        return {name}
    return {leaf for inner, each in command.commands.items() for leaf in leaves(each, f"{name} {inner}".strip())}


def test_every_command_that_changes_something_is_among_the_acts() -> None:
    known = {name for name in leaves(cli) if any(f"{given} ".startswith(f"{name} ") for given, _, _ in COMMANDS)}
    assert leaves(cli) == known | READS | ELSEWHERE | BY_THE_SAME_FUNCTION | {"init"}


def test_every_act_by_command_is_noted_once(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(database=database_url, upstream="http://127.0.0.1:9/v1"))
    environment = {"TOLLHOUSE_HOME": str(tmp_path / "home"), "TOLLHOUSE_CONFIG": str(config)}
    secrets = []
    for command, options, _ in COMMANDS:
        result = CliRunner().invoke(cli, [*command.split(), *options.split()], env=environment)
        assert result.exit_code == 0, result.output
        secrets += [line for line in result.stdout.splitlines() if line.startswith("sk-th-")]

    async def read() -> tuple[list[Any], str]:
        database = Database(database_url)
        try:
            return await list_acts(database), await dump(database)
        finally:
            await database.aclose()

    rows, everything = asyncio.run(read())
    assert [row.action for row in reversed(rows)] == [action for *_, action in COMMANDS]
    assert {(row.actor_kind, row.actor, row.source) for row in rows} == {
        ("cli", getpass.getuser(), socket.gethostname())
    }
    assert len(secrets) == 2
    for secret in secrets:
        assert secret[10:] not in everything
    console.cache_clear()  # it has taken the width of an earlier test's terminal
    shown = CliRunner().invoke(cli, ["audit"], env=environment | {"COLUMNS": "80"}).stdout
    assert all(action in shown for *_, action in COMMANDS)
    assert max(map(len, shown.splitlines())) <= 80
    console.cache_clear()


@pytest.mark.anyio
async def test_an_act_that_fails_leaves_no_trace_and_changes_nothing(admin: Admin) -> None:
    await admin("POST", "/admin/tenants", {"name": admin.acme})
    before = await list_acts(admin.house.database, limit=1)
    assert (await admin.ask("POST", "/admin/tenants", {"name": admin.acme})).status == 409
    assert (await admin.ask("POST", "/admin/keys", {"tenant": admin.acme, "team": "nobody"})).status == 404
    assert await list_acts(admin.house.database, limit=1) == before
    with pytest.raises(AssertionError, match="not noted"):
        async with acting(admin.house.database):
            pass


@pytest.mark.anyio
async def test_the_trace_is_read_in_pages_and_by_filter(admin: Admin) -> None:
    await admin.key(name="ci")
    await admin("DELETE", f"/admin/keys/ci?tenant={admin.acme}")
    path = f"/admin/audit?tenant={admin.acme}"
    first = await admin("GET", f"{path}&limit=2")
    assert [row["action"] for row in first["data"]] == ["key.revoke", "key.create"]
    second = await admin("GET", f"{path}&limit=2&after={first['next']}")
    assert ([row["action"] for row in second["data"]], second["next"]) == (["tenant.create"], None)
    assert len((await admin("GET", f"{path}&action=key"))["data"]) == 2
    assert len((await admin("GET", f"{path}&action=key.revoke"))["data"]) == 1
    assert (await admin("GET", f"{path}&action=ke%25"))["data"] == []


async def dump(database: Database) -> str:
    """Every value of every table."""
    async with database.read() as connection:
        tables = MetaData()
        await connection.run_sync(tables.reflect)
        rows = [row for table in tables.sorted_tables for row in await connection.execute(select(table))]
    return "\n".join(map(str, rows))
