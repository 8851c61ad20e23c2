"""Tenants and teams by API: made, changed, listed, disabled, deleted."""

import json
from typing import Any

import httpx
import pytest

from tests.gateway.admin.conftest import ADMIN_KEY, Admin

pytestmark = pytest.mark.anyio


async def test_a_tenants_life(admin: Admin) -> None:
    name, path = admin.acme, f"/admin/tenants/{admin.acme}"
    made = await admin("POST", "/admin/tenants", {"name": name, "tokens_per_minute": 1000, "capture": "off"})
    assert (made["name"], made["capture"]) == (name, "off")
    assert (made["tokens_per_minute"], made["requests_per_minute"]) == (1000, None)
    assert await admin("GET", path) == made
    changed = await admin("PATCH", path, {"requests_per_minute": 5, "tokens_per_minute": None})
    assert changed == made | {"requests_per_minute": 5, "tokens_per_minute": None}
    renamed = await admin("PATCH", path, {"name": f"{name}-2"})
    assert renamed in await admin("GET", "/admin/tenants")
    path += "-2"
    key = await admin.key(f"{name}-2")
    assert (await admin.chat(key)).status == 200
    refused = await admin.ask("DELETE", path)
    assert (refused.status, refused.error["code"]) == (409, "conflict")
    await admin("PATCH", path, {"disabled": True})
    await admin.notice()
    assert (await admin.chat(key)).status == 401
    await admin("DELETE", path)
    assert (await admin.ask("GET", path)).status == 404
    assert (await admin.ask("GET", f"/admin/keys?tenant={name}-2")).status == 404
    await admin.house.ledger.drain()
    books = await admin("GET", f"/admin/requests?tenant_id={made['id']}")
    assert len(books["data"]) == 1  # its books stay


async def test_a_team_groups_keys_and_can_be_disabled(admin: Admin) -> None:
    path = f"/admin/tenants/{admin.acme}/teams"
    await admin("POST", "/admin/tenants", {"name": admin.acme})
    made = await admin("POST", path, {"name": "research", "concurrent_requests": 4})
    assert (made["tenant"], made["concurrent_requests"], made["num_keys"]) == (admin.acme, 4, 0)
    inside, outside = await admin.key(team="research"), await admin.key()
    assert (await admin("GET", f"{path}/research"))["num_keys"] == 1
    listed = await admin("GET", f"/admin/keys?tenant={admin.acme}&team=research")
    assert [key["team"] for key in listed] == ["research"]
    await admin("PATCH", f"{path}/research", {"disabled": True, "name": "lab"})
    await admin.notice()
    assert [(await admin.chat(key)).status for key in (inside, outside)] == [401, 200]
    assert [team["name"] for team in await admin("GET", path)] == ["lab"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("POST", "/admin/tenants", {"name": "ACME"}, 409, "already"),
        ("POST", "/admin/tenants", {"name": "a b"}, 400, "name"),
        ("POST", "/admin/tenants", {}, 400, "name"),
        ("POST", "/admin/tenants", [], 400, "object"),
        ("POST", "/admin/tenants", {"name": "b", "tokens_per_minute": -1}, 400, "tokens_per_minute"),
        ("POST", "/admin/tenants", {"name": "b", "tokens_per_minute": 2**63}, 400, "tokens_per_minute"),
        ("POST", "/admin/tenants", {"name": "b", "capture": "all"}, 400, "capture"),
        ("POST", "/admin/tenants", {"name": "b", "token_per_minute": 1}, 400, "token_per_minute"),
        ("PATCH", "/admin/tenants/nobody", {"disabled": True}, 404, "'nobody'"),
        ("GET", "/admin/tenants/nobody/teams", None, 404, "'nobody'"),
        ("PATCH", "/admin/tenants/ACME/teams/none", {"disabled": True}, 404, "'none'"),
        ("POST", "/admin/tenants/ACME/teams", {"name": "t" * 65}, 400, "name"),
        ("DELETE", "/admin/tenants/nobody", None, 404, "'nobody'"),
        ("PUT", "/admin/tenants/ACME", {}, 405, "Not allowed"),
        ("GET", "/admin/nothing", None, 404, "Invalid URL"),
    ],
)
async def test_what_is_wrong_is_named(admin: Admin, method: str, path: str, body: Any, status: int, says: str) -> None:
    made = await admin("POST", "/admin/tenants", {"name": admin.acme})
    if body == {"name": "ACME"}:
        body = {"name": admin.acme}
    refused = await admin.ask(method, path.replace("ACME", admin.acme), body)
    assert refused.status == status, refused.text
    assert says in refused.error["message"]
    assert await admin("GET", f"/admin/tenants/{admin.acme}") == made
    assert (await admin.ask("GET", "/admin/tenants/b")).status == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "param"),
    [
        ("POST", "/admin/tenants", {"name": "b", "token_per_minute": 1}, "token_per_minute"),
        ("POST", "/admin/tenants", {}, "name"),
        ("POST", "/admin/tenants", [], None),
        ("POST", "/admin/tenants", {"name": "b", "tokens_per_minute": -1}, "tokens_per_minute"),
        ("GET", "/admin/costs?by=hour", None, "by"),
    ],
)
async def test_param_is_the_field_as_the_caller_wrote_it(
    admin: Admin, method: str, path: str, body: Any, param: str | None
) -> None:
    refused = await admin.ask(method, path, body)
    assert (refused.status, refused.error["param"]) == (400, param)
    assert not refused.error["message"].startswith(("data:", "by_"))


async def test_a_body_is_json_whatever_a_client_calls_it(admin: Admin) -> None:
    """curl -d says that it is a form, and everybody's first call is with curl."""
    transport = httpx.ASGITransport(admin.app, client=("127.0.0.1", 1))
    headers = {"authorization": f"Bearer {ADMIN_KEY}", "content-type": "application/x-www-form-urlencoded"}
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers) as client:
        answer = await client.post("/admin/tenants", content=json.dumps({"name": admin.acme}))
        assert answer.status_code == 201, answer.text
        refused = await client.post("/admin/tenants", content="name=acme")
        assert refused.status_code == 400, refused.text


@pytest.mark.parametrize(
    "path", ["/admin/tenants/a%00", "/admin/keys/a%00", "/admin/keys?tenant=a%00", "/admin/audit?action=%00"]
)
async def test_a_text_that_a_database_can_not_hold_is_the_callers_fault(admin: Admin, path: str) -> None:
    """PostgreSQL refuses a NUL; SQLite finds nothing of that name."""
    assert (await admin.ask("GET", path)).status in (200, 400, 404)
