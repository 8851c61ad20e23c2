"""The page is whole and closed to strangers' scripts; each key sees the books that are its own."""

import base64
import hashlib
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.dashboard import data, headers, page, tenant_in_sight
from gateway.errors import AuthenticationError, InvalidRequestError, NotFoundError, PermissionDeniedError
from gateway.ids import new_id
from gateway.ledger.records import RequestRecord
from gateway.store.database import Database
from gateway.store.entries import insert_entries
from gateway.tenants.auth import Authenticator
from gateway.tenants.registry import create_key, create_tenant

OPERATOR = "operator" * 8


class Books:
    def __init__(self, database: Database, authenticator: Authenticator, keys: dict[str, str]) -> None:
        self.database, self.authenticator, self.keys = database, authenticator, keys

    async def sight(self, key: str | None, wanted: str = "") -> str | None:
        return await tenant_in_sight(f"Bearer {key}" if key is not None else None, self.authenticator, wanted)


@pytest.fixture
async def books(tmp_path: Path):
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'books.db'}")
    await database.open()
    keys = {}
    for name, cost in (("acme", 100), ("globex", 7)):
        tenant = await create_tenant(database, name)
        keys[name] = (await create_key(database, name)).secret
        record = RequestRecord(
            id=new_id(), tenant_id=tenant.id, key_id="k", endpoint="embeddings", requested_model="auto", model="m",
            started_at=datetime(2026, 11, 29, tzinfo=UTC).timestamp(), cost_nanousd=cost,
        )  # fmt: skip
        await insert_entries(database, [record])
    authenticator = Authenticator(database)
    await authenticator.start()
    yield Books(database, authenticator, keys)
    await authenticator.aclose()
    await database.aclose()


@pytest.mark.anyio
async def test_a_tenants_key_sees_that_tenant(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOLLHOUSE_ADMIN_KEY", raising=False)
    assert await books.sight(books.keys["acme"]) == "acme"
    assert await books.sight(books.keys["acme"], "acme") == "acme"
    seen = await data(books.database, tenant=await books.sight(books.keys["acme"]))
    assert seen.report.total.cost_nanousd == 100
    assert {row.tenant_name for row in seen.report.rows} == {"acme"}


@pytest.mark.anyio
async def test_a_tenants_key_does_not_see_another_one(books: Books) -> None:
    with pytest.raises(PermissionDeniedError, match="'acme' only"):
        await books.sight(books.keys["acme"], "globex")


@pytest.mark.anyio
async def test_the_operators_key_sees_all_or_the_one_asked_for(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLHOUSE_ADMIN_KEY", OPERATOR)
    assert await books.sight(OPERATOR) is None
    assert await books.sight(OPERATOR, "globex") == "globex"
    assert (await data(books.database, tenant=None)).report.total.cost_nanousd == 107
    assert (await data(books.database, tenant="globex")).report.total.cost_nanousd == 7


@pytest.mark.anyio
@pytest.mark.parametrize("key", [None, "", "wrong", OPERATOR[:-1], f"{OPERATOR}é"])
async def test_anything_else_is_nobody(books: Books, monkeypatch: pytest.MonkeyPatch, key: str | None) -> None:
    monkeypatch.setenv("TOLLHOUSE_ADMIN_KEY", OPERATOR)
    with pytest.raises(AuthenticationError):
        await books.sight(key)


@pytest.mark.anyio
async def test_without_an_operators_key_an_empty_one_opens_nothing(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLLHOUSE_ADMIN_KEY", "")
    with pytest.raises(AuthenticationError):
        await books.sight("")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("query", "param"), [({"by": "hour"}, "by"), ({"since": "soon"}, "since"), ({"since": "9999999999d"}, "since")]
)
async def test_a_bad_query_is_the_callers_error(books: Books, query: dict[str, str], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await data(books.database, tenant=None, **query)
    assert caught.value.param == param


@pytest.mark.anyio
async def test_a_tenant_that_is_not_there_is_not_found(books: Books) -> None:
    with pytest.raises(NotFoundError):
        await data(books.database, tenant="nobody")


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = page().decode()
    assert not re.search(r"(src|href)\s*=", text)
    assert "@import" not in text
    outside = set(re.findall(r"https?://[^\s\"'`)]+", text))
    assert outside == {"http://www.w3.org/2000/svg"}  # a name, never fetched


def test_the_policy_lets_the_pages_own_script_and_style_run_and_no_other() -> None:
    text, policy = page().decode(), headers()["content-security-policy"]
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        inside = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_names_never_become_markup() -> None:
    script = page().decode().partition("<script>")[2]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", script)
