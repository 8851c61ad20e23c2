"""Tenants and their keys: made, listed, changed, taken away."""

import asyncio
import stat

from gateway.store.database import Database
from gateway.store.url import sqlite_url
from gateway.tenants.auth import Authenticator
from gateway.tenants.registry import get_tenant
from gateway.tenants.types import Limits, Tenant
from tests.gateway.cli.conftest import Tollhouse


def test_a_key_is_shown_once_and_opens_the_gate(tollhouse: Tollhouse) -> None:
    tollhouse.does("tenants", "add", "acme", "--requests-per-minute", "60")
    secret = tollhouse.does("keys", "create", "--tenant", "acme", "--name", "laptop").strip()
    assert secret.startswith("sk-th-")

    async def authenticate() -> tuple[str, int | None]:
        database = Database(sqlite_url(tollhouse.home))
        await database.open()
        authenticator = Authenticator(database)
        await authenticator.start()
        principal = authenticator.authenticate(f"Bearer {secret}")
        await authenticator.aclose()
        await database.aclose()
        return principal.tenant.name, principal.tenant.limits.requests_per_minute

    assert asyncio.run(authenticate()) == ("acme", 60)
    listed = tollhouse.does("keys", "list")
    assert "laptop" in listed
    assert secret not in listed
    assert secret.encode() not in (tollhouse.home / "tollhouse.db").read_bytes()


def test_a_key_is_revoked_by_what_the_list_shows(tollhouse: Tollhouse) -> None:
    tollhouse.does("tenants", "add", "acme")
    secret = tollhouse.does("keys", "create", "--tenant", "acme").strip()
    tollhouse.does("keys", "revoke", f"{secret[:10]}…")
    assert "revoked" in tollhouse.does("keys", "list", "--tenant", "acme")


def test_tenants_are_listed_with_their_state(tollhouse: Tollhouse) -> None:
    assert "no tenants yet" in tollhouse.does("tenants", "list")
    tollhouse.does("tenants", "add", "acme")
    tollhouse.does("tenants", "disable", "acme")
    assert "disabled" in tollhouse.does("tenants", "list")
    tollhouse.does("tenants", "enable", "acme")
    assert "active" in tollhouse.does("tenants", "list")


def test_a_tenant_is_changed_where_it_is_told_and_nowhere_else(tollhouse: Tollhouse) -> None:
    tollhouse.does("tenants", "add", "acme", "--requests-per-minute", "60", "--tokens-per-minute", "9000")
    tollhouse.does("tenants", "set", "acme", "--requests-per-minute", "unlimited", "--concurrent-requests", "4")
    said = tollhouse.does("tenants", "set", "acme", "--baseline-model", "m", "--default-max-tokens", "77")
    assert "baseline_model, default_max_tokens" in said

    async def tenant() -> Tenant:
        database = Database(sqlite_url(tollhouse.home))
        await database.open()
        found = await get_tenant(database, "acme")
        await database.aclose()
        return found

    changed = asyncio.run(tenant())
    assert changed.limits == Limits(requests_per_minute=0, tokens_per_minute=9000, concurrent_requests=4)
    assert (changed.baseline_model, changed.default_max_tokens, changed.capture) == ("m", 77, "signals")
    assert "unlimited" in tollhouse.does("tenants", "list")
    tollhouse.does("tenants", "set", "acme", "--tokens-per-minute", "none", "--baseline-model", "none")
    tollhouse.does("tenants", "set", "acme", "--default-max-tokens", "none", "--capture", "off")
    changed = asyncio.run(tenant())
    assert changed.limits == Limits(requests_per_minute=0, concurrent_requests=4)
    assert (changed.baseline_model, changed.default_max_tokens, changed.capture) == (None, None, "off")


def test_words_of_limits_are_names_elsewhere(tollhouse: Tollhouse) -> None:
    tollhouse("tenants", "add", "acme", "--tokens-per-minute", "unlimited")
    assert "unlimited" in tollhouse("tenants", "list").output
    tollhouse("keys", "create", "--tenant", "acme", "--name", "ci")
    assert tollhouse("keys", "set", "ci", "--models", "unlimited", "--name", "none").exit_code == 0
    shown = tollhouse("keys", "show", "none").output
    assert "models                unlimited" in shown
    assert tollhouse("keys", "set", "none", "--models", "none").exit_code == 0
    assert "models                all" in tollhouse("keys", "show", "none").output
    assert tollhouse("tenants", "set", "acme", "--name", "unlimited", "--tokens-per-minute", "none").exit_code == 0
    assert "unlimited" in tollhouse("tenants", "list").output


def test_a_second_tenant_of_a_name_is_refused(tollhouse: Tollhouse) -> None:
    tollhouse.does("tenants", "add", "acme")
    assert "acme" in tollhouse.fails("tenants", "add", "acme")


def test_init_makes_a_demo_key_that_only_its_owner_reads_and_makes_it_once(tollhouse: Tollhouse) -> None:
    said = tollhouse.does("init")
    path = tollhouse.home / "demo-key"
    assert path.read_text().strip() in said
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = path.read_text()
    assert tollhouse.does("init") == ""
    assert path.read_text() == key
    assert "demo" in tollhouse.does("tenants", "list")
