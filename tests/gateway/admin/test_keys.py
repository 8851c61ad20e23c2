"""Keys by API: what each is good for, until when, and that nothing of this is got around."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.gateway.admin.conftest import Admin, Answer

pytestmark = pytest.mark.anyio


async def models_of(admin: Admin, key: str) -> list[str]:
    return [model["id"] for model in (await admin("GET", "/v1/models", key=key))["data"]]


async def embed(admin: Admin, key: str, **how: Any) -> Answer:
    return await admin.ask("POST", "/v1/embeddings", {"model": "embed", "input": "x"}, key=key, **how)


async def test_a_secret_is_shown_once_and_never_again(admin: Admin) -> None:
    await admin("POST", "/admin/tenants", {"name": admin.acme})
    made = await admin("POST", "/admin/keys", {"tenant": admin.acme, "name": "ci", "models": ["small"]})
    secret = made.pop("secret")
    assert secret.startswith(made["prefix"])
    assert made["models"] == ["small"]
    assert [made["tiers"], made["endpoints"], made["ip_ranges"], made["expires_at"]] == [None] * 4
    for path in ("/admin/keys", f"/admin/keys/{made['id']}", "/admin/audit?limit=1000", "/admin/config"):
        answer = await admin.ask("GET", path)
        assert answer.status == 200
        assert secret not in answer.text
        assert secret[len(made["prefix"]) :] not in answer.text
    assert await admin("GET", f"/admin/keys/{made['id']}") == made


async def test_a_key_names_the_models_of_its_scope_and_no_other(admin: Admin) -> None:
    key = await admin.key(models=["sm*", "probe/ok*"])
    assert (await admin.chat(key, "small")).status == 200
    assert (await admin.chat(key, "probe/ok")).status == 200
    for model in ("big", "probe/500", "embed", "a model that does not exist"):
        refused = await admin.chat(key, model)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (403, "model_not_allowed", "model")
        assert "models sm*, probe/ok*" in refused.error["message"]
    assert (await embed(admin, key)).status == 403
    assert await models_of(admin, key) == ["auto", "small"]
    assert (await admin.ask("GET", "/v1/models/small", key=key)).status == 200
    assert (await admin.ask("GET", "/v1/models/big", key=key)).status == 404
    assert await models_of(admin, await admin.key()) == ["auto", "small", "big", "embed", "guard"]


async def test_auto_chooses_among_what_the_key_may_use(admin: Admin) -> None:
    code = "Write a Python function that parses a CSV file and returns a dictionary of its columns."
    free, bound = await admin.key(), await admin.key(tiers=["cheap"])
    assert (await admin.chat(free, "auto", code)).headers["x-tollhouse-model"] == "big"
    answer = await admin.chat(bound, "auto", code)
    assert (answer.status, answer.headers["x-tollhouse-model"]) == (200, "small")
    assert answer.headers["x-tollhouse-cache"] == "miss"  # the other key's answer is another model's
    by_model = await admin.key(models=["big"])
    assert (await admin.chat(by_model, "auto", "Hello there")).headers["x-tollhouse-model"] == "big"
    nothing = await admin.key(models=["embed"])
    refused = await admin.chat(nothing, "auto")
    assert (refused.status, refused.error["code"]) == (403, "model_not_allowed")
    assert await models_of(admin, nothing) == ["embed"]


async def test_a_tier_outside_of_the_scope_is_refused_and_so_are_its_models(admin: Admin) -> None:
    key = await admin.key(tiers=["cheap"])
    refused = await admin.chat(key, "auto", headers=[("x-tollhouse-tier", "dear")])
    assert (refused.status, refused.error["code"], refused.error["param"]) == (
        403, "tier_not_allowed", "x-tollhouse-tier",
    )  # fmt: skip
    assert (await admin.chat(key, "auto", headers=[("x-tollhouse-tier", "cheap")])).status == 200
    assert [(await admin.chat(key, model)).status for model in ("small", "big", "probe/ok")] == [200, 403, 403]
    assert (await admin.chat(key, "auto", headers=[("x-tollhouse-dry-run", "1")])).json["candidates"] == ["small"]


async def test_a_refused_scope_is_in_the_books(admin: Admin) -> None:
    key = await admin.key(models=["small"])
    await admin.chat(key, "big")
    await admin.house.ledger.drain()
    (row,) = (await admin("GET", f"/admin/requests?tenant={admin.acme}"))["data"]
    assert (row["http_status"], row["error_code"], row["requested_model"]) == (403, "model_not_allowed", "big")


async def test_endpoints(admin: Admin) -> None:
    key = await admin.key(endpoints=["embeddings", "dashboard"])
    refused = await admin.chat(key)
    assert (refused.status, refused.error["code"]) == (403, "endpoint_not_allowed")
    assert "/v1/chat/completions, only: embeddings, dashboard" in refused.error["message"]
    assert (await admin.ask("POST", "/v1/completions", {"model": "small", "prompt": "x"}, key=key)).status == 403
    assert (await admin.ask("GET", "/v1/models", key=key)).status == 200
    assert (await admin.ask("GET", "/dashboard/data", key=key)).status == 200
    no_books = await admin.key(endpoints=["embeddings"])
    assert (await admin.ask("GET", "/dashboard/data", key=no_books)).status == 403


@pytest.mark.parametrize(
    ("peer", "forwarded", "status"),
    [
        ("10.1.2.3", [], 200),
        ("::ffff:10.1.2.3", [], 200),
        ("2001:db8::7", [], 200),
        ("11.1.2.3", [], 403),
        ("2001:db9::7", [], 403),
        ("unix", [], 403),
        ("11.1.2.3", ["10.1.2.3"], 403),  # no trusted proxy: anybody can write that
        ("192.0.2.1", ["10.1.2.3"], 200),
        ("192.0.2.1", ["10.1.2.3:5555"], 200),
        ("192.0.2.1", ["[2001:db8::7]:443"], 200),
        ("192.0.2.1", ["11.1.2.3"], 403),
        ("192.0.2.1", ["10.1.2.3, 11.1.2.3"], 403),  # only the last hop is vouched for
        ("192.0.2.1", ["10.1.2.3", "11.1.2.3"], 403),
        ("192.0.2.1", ["11.1.2.3, 10.1.2.3, 192.0.2.9"], 200),  # through two proxies
        ("192.0.2.1", ["10.1.2.3, nonsense"], 403),
        ("192.0.2.1", [], 403),  # from the proxy itself
    ],
)
async def test_addresses(admin: Admin, peer: str, forwarded: list[str], status: int) -> None:
    key = await admin.key(ip_ranges=["10.0.0.0/8", "2001:db8::/32"])
    lines = [("x-forwarded-for", line) for line in forwarded]
    for answer in (
        await admin.chat(key, peer=peer, headers=lines),
        await admin.ask("GET", "/v1/models", key=key, peer=peer, headers=lines),
        await admin.ask("GET", "/dashboard/data", key=key, peer=peer, headers=lines),
    ):
        assert answer.status == status
        if status == 403:
            assert answer.error["code"] == "ip_not_allowed"
            assert "10.0.0.0" not in answer.text  # whoever stole the key is not told


async def test_a_key_expires(admin: Admin) -> None:
    in_a_day = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    key = await admin.key(name="brief", expires_at=in_a_day)
    assert (await admin.chat(key)).status == 200
    path = f"/admin/keys/brief?tenant={admin.acme}"
    await admin("PATCH", path, {"expires_at": datetime.now(UTC).isoformat()})
    await admin.notice()
    refused = await admin.chat(key)
    assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
    assert "expired" in refused.error["message"]
    await admin("PATCH", path, {"expires_at": None})
    await admin.notice()
    assert (await admin.chat(key)).status == 200


async def test_rotation_overlaps_as_long_as_it_is_told(admin: Admin) -> None:
    first = await admin.key(name="ci", models=["small"])
    path = f"/admin/keys/ci/rotate?tenant={admin.acme}"
    rotated = await admin("POST", path, {"overlap_s": 3600})
    second = rotated["secret"]
    assert rotated["models"] == ["small"]
    assert rotated["previous_until"] > datetime.now(UTC).isoformat()
    await admin.notice()
    for key in (first, second):
        assert [(await admin.chat(key, model)).status for model in ("small", "big")] == [200, 403]
    third = (await admin("POST", path, {"overlap_s": 0}))["secret"]
    await admin.notice()
    answers = [await admin.chat(key) for key in (first, second, third)]
    assert [answer.status for answer in answers] == [401, 401, 200]
    assert "replaced" in answers[1].error["message"]
    await admin("DELETE", f"/admin/keys/ci?tenant={admin.acme}")
    assert (await admin.ask("POST", path, {})).status == 400  # a revoked key stays revoked


async def test_revoking_and_restoring(admin: Admin) -> None:
    key = await admin.key(name="ci")
    path = f"/admin/keys/ci?tenant={admin.acme}"
    assert (await admin("DELETE", path))["disabled"] is True
    await admin.notice()
    assert (await admin.chat(key)).status == 401
    await admin("PATCH", path, {"disabled": False})
    await admin.notice()
    assert (await admin.chat(key)).status == 200


async def test_a_restriction_is_lifted_by_null_alone(admin: Admin) -> None:
    key = await admin.key(name="ci", models=["small"], tiers=["cheap"])
    path = f"/admin/keys/ci?tenant={admin.acme}"
    assert (await admin.ask("PATCH", path, {"models": []})).status == 400
    changed = await admin("PATCH", path, {"models": None})
    assert (changed["models"], changed["tiers"]) == (None, ["cheap"])
    await admin("PATCH", path, {"tiers": None})
    await admin.notice()
    assert (await admin.chat(key, "big")).status == 200


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"endpoints": ["chat.completions"]}, "did you mean 'chat/completions'"),
        ({"ip_ranges": ["10.0.0.1/8"]}, "host bits"),
        ({"ip_ranges": ["everywhere"]}, "no range"),
        ({"ip_ranges": ["10.0.0.0/33"]}, "no range"),
        ({"models": [""]}, "models"),
        ({"models": "small"}, "models"),
        ({"models": ["a\nb"]}, "printable"),
        ({"team": "nobody"}, "no team"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "past"),
        ({"expires_at": "2030-01-01T00:00:00"}, "expires_at"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"name": "a b"}, "name"),
        ({"tenant": "nobody-at-all"}, "no tenant"),
        ({"scope": {}}, "scope"),
    ],
)
async def test_what_makes_no_sense_makes_no_key(admin: Admin, fields: dict[str, Any], says: str) -> None:
    await admin("POST", "/admin/tenants", {"name": admin.acme})
    refused = await admin.ask("POST", "/admin/keys", {"tenant": admin.acme} | fields)
    assert refused.status in (400, 404), refused.text
    assert says in refused.error["message"]
    assert await admin("GET", f"/admin/keys?tenant={admin.acme}") == []


async def test_a_name_that_several_keys_have_is_not_guessed(admin: Admin) -> None:
    others = f"{admin.acme}-other"
    for tenant in (admin.acme, others):
        await admin.key(tenant, name=f"ci-{admin.acme}")
    refused = await admin.ask("DELETE", f"/admin/keys/ci-{admin.acme}")
    assert refused.status == 404
    assert "2 keys" in refused.error["message"]
    assert (await admin("DELETE", f"/admin/keys/ci-{admin.acme}?tenant={others}"))["tenant"] == others
