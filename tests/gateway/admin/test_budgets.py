"""Budgets by API: set, listed, in force, removed."""

from typing import Any

import pytest

from tests.gateway.admin.conftest import Admin

pytestmark = pytest.mark.anyio


async def test_a_budgets_life(admin: Admin) -> None:
    key = await admin.key(name="ci")
    mine = f"tenant={admin.acme}"
    wanted = {"tenant": admin.acme, "key": "ci", "period": "month", "amount_usd": 0.5, "warn_percents": [50]}
    made = await admin("PUT", "/admin/budgets", wanted)
    assert (made["owner_kind"], made["owner"], made["amount_nanousd"]) == ("key", "ci", 500_000_000)
    assert (made["hard"], made["warn_percents"], made["spent_nanousd"]) == (True, [50], 0)
    assert (await admin.chat(key)).status == 200
    again = await admin("PUT", "/admin/budgets", wanted | {"amount_usd": 0.25})
    assert [row["amount_nanousd"] for row in await admin("GET", f"/admin/budgets?{mine}")] == [250_000_000]
    assert again["id"] != made["id"]
    await admin("DELETE", f"/admin/budgets?{mine}&key=ci&period=month")
    assert await admin("GET", f"/admin/budgets?{mine}") == []
    assert (await admin.ask("DELETE", f"/admin/budgets?{mine}&key=ci&period=month")).status == 404


async def test_a_webhook_is_shown_by_its_host_alone(admin: Admin) -> None:
    await admin("POST", "/admin/tenants", {"name": admin.acme})
    url = "https://hooks.example.com/services/T0/secret-path"
    made = await admin(
        "PUT", "/admin/budgets", {"tenant": admin.acme, "period": "day", "amount_usd": 1, "webhook_url": url}
    )
    assert made["webhook_url"] == "https://hooks.example.com/***"
    audit = await admin.ask("GET", f"/admin/audit?tenant={admin.acme}")
    assert "hooks.example.com" in audit.text
    assert "secret-path" not in audit.text


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"amount_usd": -1}, 400, "amount_usd"),
        ({"period": "year"}, 400, "period"),
        ({"team": "nobody"}, 404, "'nobody'"),
        ({"key": "nobody"}, 404, "no such key"),
        ({"warn_percents": [0]}, 400, "warn_percents"),
        ({"webhook_url": "http://169.254.169.254/"}, 400, "webhook"),
    ],
)
async def test_what_is_wrong_is_named(admin: Admin, fields: dict[str, Any], status: int, says: str) -> None:
    await admin("POST", "/admin/tenants", {"name": admin.acme})
    refused = await admin.ask(
        "PUT", "/admin/budgets", {"tenant": admin.acme, "period": "day", "amount_usd": 1} | fields
    )
    assert refused.status == status, refused.text
    assert says in refused.error["message"]


async def test_a_deleted_tenant_takes_its_budgets_along(admin: Admin) -> None:
    await admin.key(name="ci")
    for key in (None, "ci"):
        await admin("PUT", "/admin/budgets", {"tenant": admin.acme, "key": key, "period": "day", "amount_usd": 1})
    await admin("PATCH", f"/admin/tenants/{admin.acme}", {"disabled": True})
    await admin("DELETE", f"/admin/tenants/{admin.acme}")
    assert admin.acme not in (await admin.ask("GET", "/admin/budgets")).text
