"""The whole application without a server: its admin API called as a program would, on both kinds of database."""

import itertools
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app import create_app
from gateway.house import House
from tests.faults.misbehaving import MisbehavingUpstream

ADMIN_KEY = "admin-" + "k" * 40
CONFIG = """
[store]
database_url = "{database}"
[server]
trusted_proxies = ["192.0.2.0/24"]
[cache]
semantic = false
[[provider]]
name = "upstream"
base_url = "{upstream}"
headers = {{ "x-secret" = "header-secret" }}
[[model]]
name = "small"
provider = "upstream"
upstream_name = "ok"
input_usd_per_mtok = 1.0
output_usd_per_mtok = 2.0
[[model]]
name = "big"
provider = "upstream"
upstream_name = "ok"
[[model]]
name = "embed"
provider = "upstream"
upstream_name = "ok"
kind = "embedding"
[[model]]
name = "guard"
provider = "upstream"
kind = "moderation"
[[model]]
name = "probe/*"
provider = "upstream"
[tier.cheap]
models = ["small"]
tasks = ["chat"]
[tier.dear]
models = ["big"]
tasks = ["code"]
"""


_numbers = itertools.count()


class Answer:
    def __init__(self, response: httpx.Response) -> None:
        self.status, self.headers, self.text = response.status_code, response.headers, response.text

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


class Admin:
    """`await admin("POST", "/admin/tenants", {...})`, with the admin key unless told otherwise."""

    def __init__(self, app: Any, config: Path) -> None:
        self.app = app
        self.config = config
        self.acme = ""

    @property
    def house(self) -> House:
        house: House = self.app.state.house
        return house

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = ADMIN_KEY,
        peer: str = "198.51.100.7",
        headers: list[tuple[str, str | bytes]] | None = None,
    ) -> Answer:
        sent = [(name.encode(), value.encode() if isinstance(value, str) else value) for name, value in headers or []]
        if key is not None:
            sent.append((b"authorization", f"Bearer {key}".encode()))
        transport = httpx.ASGITransport(self.app, client=(peer, 1234), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return Answer(await client.request(method, path, json=body, headers=sent))

    async def __call__(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        """What a call that succeeds answers."""
        answer = await self.ask(method, path, body, **how)
        assert answer.status < 300, answer.text
        return answer.json if answer.text else None

    async def key(self, tenant: str = "", **fields: Any) -> str:
        """A new tenant's key, if there is no such tenant yet; known to the gateway at once."""
        tenant = tenant or self.acme
        if (await self.ask("GET", f"/admin/tenants/{tenant}")).status == 404:
            await self("POST", "/admin/tenants", {"name": tenant})
        made = await self("POST", "/admin/keys", {"tenant": tenant} | fields)
        await self.notice()
        return str(made["secret"])

    async def notice(self) -> None:
        """What was changed is in force, without waiting for the watch."""
        await self.house.authenticator._watch.poll()

    async def chat(self, key: str, model: str = "small", text: str = "", **how: Any) -> Answer:
        body = {"model": model, "messages": [{"role": "user", "content": text or str(uuid.uuid4())}]}
        return await self.ask("POST", "/v1/chat/completions", body, key=key, **how)


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
async def _admin(
    request: pytest.FixtureRequest,
    anyio_backend: str,
    _running_upstream: MisbehavingUpstream,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Admin]:
    """One gateway for each kind of database: to open one takes longer than what most tests do."""
    folder = tmp_path_factory.mktemp(f"admin-{request.param}")
    url = f"sqlite+aiosqlite:///{folder / 'books.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("_shared_postgres").new_database()
    config = folder / "config.toml"
    config.write_text(CONFIG.format(database=url, upstream=_running_upstream.base_url))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TOLLHOUSE_HOME", str(folder / "home"))
        patched.setenv("TOLLHOUSE_ADMIN_KEY", ADMIN_KEY)
        app = create_app(config)
        async with app.lifespan():
            yield Admin(app, config)


@pytest.fixture
def admin(_admin: Admin, upstream: MisbehavingUpstream, monkeypatch: pytest.MonkeyPatch) -> Admin:
    """With a tenant of the test's own, `admin.acme`, that nobody has made yet."""
    monkeypatch.setenv("TOLLHOUSE_ADMIN_KEY", ADMIN_KEY)
    _admin.acme = f"acme-{next(_numbers)}"
    return _admin
