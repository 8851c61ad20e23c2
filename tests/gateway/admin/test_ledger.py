"""The books and prices by API: filters, pages, details."""

from typing import Any

import pytest

from tests.gateway.admin.conftest import Admin

pytestmark = pytest.mark.anyio


async def test_pages_hold_every_request_once_newest_first(admin: Admin) -> None:
    key = await admin.key()
    for _ in range(7):
        await admin.chat(key)
    await admin.house.ledger.drain()
    path = f"/admin/requests?tenant={admin.acme}&limit=3"
    pages, cursor = [], ""
    while cursor is not None:
        page = await admin("GET", f"{path}&after={cursor}" if cursor else path)
        pages.append([row["id"] for row in page["data"]])
        cursor = page["next"]
    assert [len(page) for page in pages] == [3, 3, 1]
    ids = [row for page in pages for row in page]
    assert ids == sorted(set(ids), reverse=True)


@pytest.mark.parametrize("path", ["/admin/requests", "/admin/audit", "/v1/files", "/v1/batches"])
@pytest.mark.parametrize("after", ["zz", "", "0", "batch_zz", "file-" + "G" * 32, "%00", "é", "a" * 33])
async def test_a_cursor_that_is_none_is_refused(admin: Admin, path: str, after: str) -> None:
    key = {"key": await admin.key()} if path.startswith("/v1") else {}
    answer = await admin.ask("GET", f"{path}?after={after}", **key)
    assert (answer.status, answer.error["param"]) == (400, "after")


async def test_filters_narrow_each_other(admin: Admin) -> None:
    key = await admin.key(name="ci")
    await admin.chat(key, "small", text="Hello there")
    await admin.chat(key, "small", text="Hello there")
    await admin.chat(key, "probe/500")
    await admin.house.ledger.drain()

    async def found(**filters: str) -> int:
        query = "&".join(f"{name}={value}" for name, value in filters.items())
        return len((await admin("GET", f"/admin/requests?tenant={admin.acme}&{query}"))["data"])

    assert await found(cache="hit-exact") == 1
    assert await found(status="error") == 1
    assert await found(status="error", model="small") == 0
    assert await found(model="small", tier="cheap", endpoint="chat.completions") == 2
    assert await found(since="2020-01-01", until="2021-01-01") == 0
    assert await found(since="2020-01-01T00:00:00Z") == 3
    assert await found(key_id="nobody's") == 0


async def test_a_request_comes_with_its_attempts(admin: Admin) -> None:
    key = await admin.key()
    answer = await admin.chat(key, "small")
    await admin.house.ledger.drain()
    detail = await admin("GET", f"/admin/requests/{answer.headers['x-request-id']}")
    (attempt,) = detail["attempts"]
    assert (attempt["attempt"], attempt["upstream_model"], attempt["status"]) == (0, "ok", "ok")
    assert attempt["cost_nanousd"] == detail["request"]["cost_nanousd"] > 0
    assert (await admin.ask("GET", "/admin/requests/nothing")).status == 404


async def test_costs_are_what_the_command_line_says(admin: Admin) -> None:
    key = await admin.key()
    await admin.chat(key, "small")
    await admin.house.ledger.drain()
    report = await admin("GET", f"/admin/costs?tenant={admin.acme}&by=model&since=1d")
    assert [row["group"] for row in report["rows"]] == ["small"]
    assert report["total"]["cost_nanousd"] > 0


async def test_a_price_is_set_once_and_rules_at_once(admin: Admin) -> None:
    price = {"model": "big", "input_usd_per_mtok": 0.1, "output_usd_per_mtok": 3, "valid_from": "2030-01-01T00:00:00Z"}
    before = len(await admin("GET", "/admin/prices?model=big"))
    made = await admin("POST", "/admin/prices", price)
    assert (made["input_nanousd_per_mtok"], made["source"]) == (100_000_000, "operator")
    again = await admin.ask("POST", "/admin/prices", price)
    assert again.status == 409
    assert len(await admin("GET", "/admin/prices?model=big")) == before + 1


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/admin/costs?since=soon", None, 400, "since"),
        ("/admin/costs?by=hour", None, 400, "by"),
        ("/admin/costs?tenant=nobody-at-all", None, 404, "nobody-at-all"),
        ("/admin/requests?limit=0", None, 400, "limit"),
        ("/admin/requests?limit=1001", None, 400, "limit"),
        ("/admin/requests?since=soon", None, 400, "since"),
        ("/admin/requests?tenant=nobody-at-all", None, 404, "nobody-at-all"),
        ("/admin/prices", {"model": "huge", "input_usd_per_mtok": 1, "output_usd_per_mtok": 1}, 404, "huge"),
        ("/admin/prices", {"model": "big", "input_usd_per_mtok": -1, "output_usd_per_mtok": 1}, 400, "input"),
        ("/admin/prices", {"model": "big", "input_usd_per_mtok": 1}, 400, "output_usd_per_mtok"),
    ],
)
async def test_what_is_wrong_is_named(admin: Admin, path: str, body: Any, status: int, says: str) -> None:
    refused = await admin.ask("POST" if body else "GET", path, body)
    assert refused.status == status, refused.text
    assert says in refused.error["message"]
