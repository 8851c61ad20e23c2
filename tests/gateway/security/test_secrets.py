"""A real gateway through an hour of everything that goes wrong: none of its secrets is found anywhere afterwards."""

import json
import socket
import sqlite3
import urllib.request

import pytest

from tests.faults.misbehaving import MisbehavingUpstream, Script, Wire
from tests.faults.misbehaviours import SCRIPTS, TOKEN
from tests.support.in_process import chat
from tests.support.server import Gateway

ADMIN_KEY = "0a9d8c7b6e5f4a3b2c1d0e9f8a7b6c5d"
PROVIDER_KEY = "7f3e1d5c9b2a4e6f8d0c"  # of no known look
HEADER_SECRET = "hdr+S3cret/value=="
WEBHOOK_SECRET = "whsec-not.in.any.log"
STRANGERS_KEY = "sk-th-" + "Stranger" * 5
CONFIG = """
[cache]
semantic = false
[security]
allow_private_webhooks = true
[webhooks]
url = "http://127.0.0.1:9/hook-path-token-q1w2e3"
secret_env = "HOOK_SECRET"
[[provider]]
name = "upstream"
base_url = "{upstream}"
api_key_env = "UPSTREAM_KEY"
headers = {{ "x-vendor-auth" = "{header}" }}
max_retries = 0
[[provider]]
name = "nowhere"
base_url = "http://127.0.0.1:9/v1"
api_key_env = "UPSTREAM_KEY"
max_retries = 0
[[model]]
name = "nowhere"
provider = "nowhere"
"""
MODEL = """
[[model]]
name = "probe/{name}"
provider = "upstream"
upstream_name = "{name}"
input_usd_per_mtok = 1000.0
output_usd_per_mtok = 1000.0
"""


def telltale(status: str) -> Script:
    async def tell(wire: Wire) -> None:
        """Says all that it was sent."""
        await wire.json({"error": {"message": str(wire.request.headers), "code": PROVIDER_KEY}}, status)

    return tell


async def garbage(wire: Wire) -> None:
    await wire.raw(f"HTTP/1.1 200 {PROVIDER_KEY}\r\n{PROVIDER_KEY}\r\n\r\n".encode())


async def half_a_stream(wire: Wire) -> None:
    await wire.start_events(f"x-leak: {PROVIDER_KEY}\r\n")
    await wire.event({"error": {"message": "over", "code": PROVIDER_KEY}})
    wire.reset()


async def a_late_error(wire: Wire) -> None:
    await wire.start_events()
    await wire.event(TOKEN, 0.2)  # so that the error comes alone
    await wire.event({"error": {"message": str(wire.request.headers), "code": PROVIDER_KEY}})
    await wire.end()


class Everything:
    """Whatever the gateway says or writes."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.told: dict[str, bytes] = {}

    def note(self, what: str, answer: tuple[int, dict[str, str], bytes]) -> int:
        status, headers, body = answer
        self.told[f"{len(self.told)} {what}"] = repr(headers).encode() + body
        return status

    def written(self) -> dict[str, bytes]:
        files = (path for path in self.gateway.home.rglob("*") if path.is_file())
        found = {str(path.relative_to(self.gateway.home)): path.read_bytes() for path in files}
        with sqlite3.connect(self.gateway.home / "tollhouse.db") as database:
            found["dump"] = "\n".join(database.iterdump()).encode()
        return found


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Everything, list[str]]:
    tales = {f"tell-{s[:3]}": telltale(s) for s in ("400 Bad", "401 No", "403 No", "404 No", "429 Wait", "500 Broken")}
    scripts = tales | {"garbage": garbage, "half": half_a_stream, "late": a_late_error, "ok": SCRIPTS["ok"]}
    models = "".join(MODEL.format(name=name) for name in scripts)  # each with a breaker of its own
    secrets = {"TOLLHOUSE_ADMIN_KEY": ADMIN_KEY, "UPSTREAM_KEY": PROVIDER_KEY, "HOOK_SECRET": WEBHOOK_SECRET}
    with MisbehavingUpstream(scripts) as upstream:
        config = CONFIG.format(upstream=upstream.base_url, header=HEADER_SECRET) + models
        with Gateway.over(config, tmp_path_factory.mktemp("secrets"), **secrets) as gateway:
            seen = Everything(gateway)
            key = gateway.key("acme")
            _fail_in_every_way(seen, key, [*scripts])
            _administer(seen, key)
    return seen, [key, ADMIN_KEY, PROVIDER_KEY, HEADER_SECRET, WEBHOOK_SECRET, STRANGERS_KEY]


def _fail_in_every_way(seen: Everything, key: str, behaviours: list[str]) -> None:
    gateway = seen.gateway
    for name in behaviours:
        for stream in (False, True):
            seen.note(name, gateway.post("/v1/chat/completions", chat(f"probe/{name}", stream=stream), key))
        seen.note(name, gateway.post("/v1/messages", chat(f"probe/{name}", max_tokens=5), key))
        seen.note(name, gateway.post("/v1/responses", {"model": f"probe/{name}", "input": "hi"}, key))
    seen.note("nowhere", gateway.post("/v1/chat/completions", chat("nowhere"), key))
    for wrong in (STRANGERS_KEY, ADMIN_KEY, PROVIDER_KEY, key[:-1]):
        assert seen.note("a wrong key", gateway.post("/v1/chat/completions", chat(), wrong)) == 401
        seen.note("a wrong key", gateway.get("/dashboard/data", wrong))
    for body in (f'{{"model": "{key}"', f'"{key}"', json.dumps(chat(key)), json.dumps(chat() | {key: 1, "n": key})):
        assert seen.note("malformed", gateway.post("/v1/chat/completions", body.encode(), key)) == 400
    for path in (
        f"/v1/models/{key}",
        f"/v1/{key}",
        f"/v1/files/{key}",
        f"/{ADMIN_KEY}",
        f"/v1/responses/{PROVIDER_KEY}",
    ):
        status, headers, _ = gateway.get(path, key)  # which repeats the caller's own words to the caller alone
        seen.note("a key in a path", (status, headers, b""))
        assert status == 404
    _say(gateway, f"GET /v1/models HTTP/1.1\r\nauthorization: Bearer {key}\r\nx: \x01\r\n\r\n")
    _say(gateway, f"POST /v1/chat/completions HTTP/1.1\r\nauthorization: Bearer {key}\r\ncontent-length: 9\r\n\r\n{{")


def _say(gateway: Gateway, text: str) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as line:
        line.sendall(text.encode())


def _administer(seen: Everything, key: str) -> None:
    gateway = seen.gateway
    post = gateway.post
    budget = {"tenant": "acme", "period": "day", "amount_usd": 0.000001}
    assert seen.note("a budget", gateway.put("/admin/budgets", budget, ADMIN_KEY)) == 200
    seen.note("over budget", post("/v1/chat/completions", chat("probe/ok", text="again"), key))
    for url in (f"http://user:{WEBHOOK_SECRET}@example.com/", f"http://[{WEBHOOK_SECRET}"):
        assert (
            seen.note("a bad webhook", gateway.put("/admin/budgets", budget | {"webhook_url": url}, ADMIN_KEY)) == 400
        )
    assert seen.note("nested", post("/admin/tenants", b"[" * 50_000, ADMIN_KEY)) == 400
    seen.note("a wrong key", post("/admin/tenants", {"name": "x"}, key))
    for path in (
        "/admin/config",
        "/admin/audit",
        "/admin/keys?tenant=acme",
        "/admin/health",
        "/admin/cache",
        "/metrics",
    ):
        status = seen.note(path, gateway.get(path, ADMIN_KEY))
        assert status == 200, path
    for path in ("/dashboard", "/dashboard/data", "/health/ready"):
        assert seen.note(path, gateway.get(path, ADMIN_KEY)) == 200
    with urllib.request.urlopen(f"{gateway.url}/metrics") as response:
        seen.told["metrics"] = response.read()
    seen.told["config"] = gateway.tollhouse("config", "show", check=False).encode()
    seen.told["keys"] = gateway.tollhouse("keys", "list").encode()


def test_no_secret_is_told(everything: tuple[Everything, list[str]]) -> None:
    seen, secrets = everything
    assert [(name, secret) for name, text in seen.told.items() for secret in secrets if secret.encode() in text] == []


def test_no_secret_is_written(everything: tuple[Everything, list[str]]) -> None:
    """Into the log, the database, the journal or anything else below the state folder."""
    seen, secrets = everything
    written = seen.written()
    assert {"gateway.log", "tollhouse.db"} <= set(written)
    assert [(name, secret) for name, text in written.items() for secret in secrets if secret.encode() in text] == []


def test_webhooks_path_is_not_told_either(everything: tuple[Everything, list[str]]) -> None:
    seen, _ = everything
    assert b"q1w2e3" not in b"".join([*seen.told.values(), *seen.written().values()])


def test_all_of_it_went_wrong(everything: tuple[Everything, list[str]]) -> None:
    """Else the others would say nothing: each failure left its line."""
    log = everything[0].gateway.log
    for trace in (
        "repeats our key",
        '"event":"refusal"',
        "invalid_api_key",
        "not http",
        "connect",
        "permission_denied",
    ):
        assert trace in log.lower(), trace
