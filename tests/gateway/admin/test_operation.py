"""Cache, config and health by API; and who gets in at all."""

import asyncio
import time

import pytest
from click.testing import CliRunner

from gateway.api.admin.openapi import document
from gateway.app import create_app
from gateway.cli.root import cli
from gateway.config_check import ConfigError
from gateway.tenants.admin_key import is_admin
from tests.gateway.admin.conftest import ADMIN_KEY, Admin

pytestmark = pytest.mark.anyio


async def misses_within_a_second(admin: Admin, key: str, text: str) -> None:
    """Each look leaves the answer as it is: it may be served from the cache, and not be made anew."""
    until = time.monotonic() + 5
    only_cached = [("cache-control", "only-if-cached")]
    while (await admin.chat(key, text=text, headers=only_cached)).status != 504:
        assert time.monotonic() < until, "the answer is still served"
        await asyncio.sleep(0.05)


async def hits(admin: Admin, key: str, text: str) -> bool:
    return (await admin.chat(key, text=text)).headers["x-tollhouse-cache"] == "hit-exact"


async def test_one_tenants_cache_is_cleared_alone(admin: Admin) -> None:
    ours, theirs = await admin.key(), await admin.key(f"{admin.acme}-other")
    for key in (ours, theirs):
        await admin.chat(key, text="What is due?")
        assert await hits(admin, key, "What is due?")
    assert (await admin("GET", "/admin/cache"))["entries"] >= 2
    await admin("POST", "/admin/cache/clear", {"tenant": admin.acme})
    await misses_within_a_second(admin, ours, "What is due?")
    assert await hits(admin, theirs, "What is due?")
    await admin("POST", "/admin/cache/clear", {})
    await misses_within_a_second(admin, theirs, "What is due?")


async def test_one_stored_answer_is_invalidated_by_its_id(admin: Admin) -> None:
    key = await admin.key()
    for text in ("What is due?", "And what was?"):
        await admin.chat(key, text=text)
    entry = (await admin.chat(key, text="What is due?")).headers["x-tollhouse-cache-entry"]
    await admin("DELETE", f"/admin/cache/entries/{entry}")
    await misses_within_a_second(admin, key, "What is due?")
    assert await hits(admin, key, "And what was?")


async def test_the_config_is_shown_without_its_secrets(admin: Admin) -> None:
    shown = await admin("GET", "/admin/config")
    assert shown["provider"][0]["headers"] == {"x-secret": "***"}
    assert shown["cache"]["ttl_s"] == 86_400.0  # a default
    assert "header-secret" not in (await admin.ask("GET", "/admin/config")).text


async def test_a_config_is_tried_out(admin: Admin) -> None:
    text = admin.config.read_text()
    assert await admin("POST", "/admin/config/check", {"toml": text}) == {"valid": True, "faults": []}
    for broken, says in (
        (text.replace("[tier.dear]", "[tier.dear]\nmodel = 1"), "tier.dear.model: unknown key"),
        (text.replace('tasks = ["code"]', 'tasks = ["cooking"]'), "cooking"),
        ("[", "TOML"),
    ):
        verdict = await admin("POST", "/admin/config/check", {"toml": broken})
        assert not verdict["valid"]
        assert says in " ".join(verdict["faults"])


async def test_health(admin: Admin) -> None:
    found = await admin("GET", "/admin/health")
    assert (found["status"], found["parts"]["database"]) == ("ok", "ok")
    assert found["config_hash"] == admin.house.snapshot.config.hash


async def test_deployments_are_shown_as_traffic_found_them(admin: Admin) -> None:
    await admin.chat(await admin.key(), text="How are they?")
    found = await admin("GET", "/admin/deployments")
    (small,) = [each for each in found if each["model"] == "small"]
    assert (small["provider"], small["upstream_model"], small["state"]) == ("upstream", "ok", "closed")
    assert (small["running"], small["open_for_s"], small["first_token_s"]) == (0, 0, None)
    assert small["whole_answer_s"] > 0


@pytest.mark.parametrize("path", ["/admin/tenants", "/admin/openapi.json", "/admin/requests", "/admin/health"])
async def test_nobody_gets_in_but_the_admin_key(admin: Admin, path: str) -> None:
    tenants_key = await admin.key()
    for key in (tenants_key, "", ADMIN_KEY[:-1], f"{ADMIN_KEY}x", "sk-th-nobody", "\u00fc" * 46):
        refused = await admin.ask("GET", path, key=None, headers=[("authorization", f"Bearer {key}".encode("latin-1"))])
        assert refused.status == 403, key
        assert refused.error["code"] == "permission_denied"
        assert not key or key not in refused.text
    assert (await admin.ask("GET", path, key=None)).status == 401


async def test_the_admin_key_is_no_tenants_key(admin: Admin) -> None:
    assert (await admin.chat(ADMIN_KEY)).status == 401
    assert (await admin.ask("GET", "/v1/models")).status == 401


async def test_without_an_admin_key_the_api_is_off(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLHOUSE_ADMIN_KEY", "")
    app = create_app(admin.config)
    app.state.house = admin.house
    closed = Admin(app, admin.config)
    for method, path in (("GET", "/admin"), ("GET", "/admin/tenants"), ("POST", "/admin/keys"), ("GET", "/admin/a/b")):
        refused = await closed.ask(method, path)
        assert refused.status == 403
        assert "set TOLLHOUSE_ADMIN_KEY" in refused.error["message"]


async def test_a_key_that_could_be_guessed_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLHOUSE_ADMIN_KEY", "short")
    with pytest.raises(ConfigError, match="has 5 characters, and needs 32"):
        is_admin("Bearer short")


def test_it_is_refused_in_one_line(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLHOUSE_ADMIN_KEY", "short")
    told = CliRunner().invoke(cli, ["serve", "--config", str(admin.config), "--port", "0"])
    assert told.exit_code == 1
    assert told.stderr == "Error: TOLLHOUSE_ADMIN_KEY has 5 characters, and needs 32: openssl rand -hex 32\n"


OPERATIONS = [(method, path) for path, methods in document()["paths"].items() for method in methods]


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
async def test_no_operation_is_open_to_a_tenant(admin: Admin, method: str, path: str) -> None:
    """Not even where it would be about itself; and nothing of what is sent is looked at before."""
    key = await admin.key(name="mine")
    named = path.format(tenant=admin.acme, team="t", key="mine", request_id="r", entry_id="e")
    for body in (None, {"name": admin.acme, "tenant": admin.acme}):
        refused = await admin.ask(method.upper(), named, body, key=key)
        assert (refused.status, refused.error["code"]) == (403, "permission_denied")
    assert (await admin("GET", f"/admin/keys/mine?tenant={admin.acme}"))["disabled"] is False
