"""Keys are known from memory: at once, within a second of a change, and while the database is away."""

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.errors import AuthenticationError, PermissionDeniedError
from gateway.store.database import Database
from gateway.store.errors import StoreUnavailable
from gateway.tenants import registry
from gateway.tenants.auth import Authenticator
from gateway.tenants.types import Scope


async def within(seconds: float, work: Any) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            return work()
        except (AssertionError, AuthenticationError):
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.02)


@pytest.mark.anyio
async def test_a_key_stands_for_its_tenant(database: Database) -> None:
    tenant = await registry.create_tenant(database, "acme", baseline_model="gpt-4o")
    made = await registry.create_key(database, "acme", "ci")
    authenticator = Authenticator(database)
    await authenticator.start()
    for header in (f"Bearer {made.secret}", f"bearer {made.secret}", f"Bearer  {made.secret} "):
        principal = authenticator.authenticate(header)
        assert principal.tenant == tenant
        assert principal.key == made.key
    await authenticator.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Basic abc", "sk-th-a", "Bearer WRONG", "Bearer \udcff", "Bearer ü", "Bearer \0"],
)
async def test_other_callers_are_refused_and_not_quoted(sqlite_url: str, header: str | None) -> None:
    database = Database(sqlite_url)
    await database.open()
    authenticator = Authenticator(database)
    await authenticator.start()
    with pytest.raises(AuthenticationError) as refused:
        authenticator.authenticate(header)
    assert refused.value.status == 401
    assert refused.value.code == "invalid_api_key"
    assert "WRONG" not in refused.value.encode().decode()
    await authenticator.aclose()
    await database.aclose()


@pytest.mark.anyio
async def test_changes_arrive_within_a_second(database: Database) -> None:
    await registry.create_tenant(database, "acme")
    authenticator = Authenticator(database)
    await authenticator.start()
    made = await registry.create_key(database, "acme")
    header = f"Bearer {made.secret}"
    await within(1.0, lambda: authenticator.authenticate(header))

    def refused(why: str) -> None:
        with pytest.raises(AuthenticationError, match=why):
            authenticator.authenticate(header)

    await registry.disable_key(database, made.key.id)
    await asyncio.sleep(1.0)
    refused("key has been disabled")
    await registry.enable_key(database, made.key.id)
    await registry.disable_tenant(database, "acme")
    await asyncio.sleep(1.0)
    refused("tenant of this API key")
    await authenticator.aclose()


@pytest.mark.anyio
async def test_known_keys_outlive_the_database(postgres_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tollhouse.store")
    url = postgres_server.new_database()
    database = Database(url)
    await database.open()
    await registry.create_tenant(database, "acme")
    made = await registry.create_key(database, "acme")
    authenticator = Authenticator(database, interval_s=0.05)
    await authenticator.start()
    postgres_server.stop()
    await asyncio.sleep(0.5)
    assert authenticator.authenticate(f"Bearer {made.secret}").tenant.name == "acme"
    assert authenticator.error is not None
    with pytest.raises(StoreUnavailable):
        await registry.list_tenants(database)
    postgres_server.start()
    later = await registry.create_key(database, "acme", "later")
    await within(2.0, lambda: authenticator.authenticate(f"Bearer {later.secret}"))
    assert authenticator.error is None
    messages = [record.message for record in caplog.records if record.name == "tollhouse.store"]
    assert len(messages) == 2  # once when it goes, once when it is back
    await authenticator.aclose()
    await database.aclose()


@pytest.mark.anyio
async def test_a_start_without_a_database_says_so() -> None:
    database = Database("postgresql://postgres@127.0.0.1:1/nothing")
    with pytest.raises(StoreUnavailable, match="can't be reached"):
        await Authenticator(database).start()
    await database.aclose()


@pytest.mark.anyio
async def test_a_key_made_just_now_is_looked_for(database: Database) -> None:
    """Without waiting for the next poll, which here is an hour away."""
    authenticator = Authenticator(database, interval_s=3600)
    await authenticator.start()
    await registry.create_tenant(database, "acme")
    for name in ("one", "two", "three"):
        made = await registry.create_key(database, "acme", name)
        assert (await authenticator.identify(f"Bearer {made.secret}")).key == made.key
    await authenticator.aclose()


@pytest.mark.anyio
async def test_a_flood_of_unknown_keys_is_one_look(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    authenticator = Authenticator(database, interval_s=3600)
    await authenticator.start()
    looks = 0
    poll = authenticator._watch.poll

    async def counted() -> None:
        nonlocal looks
        looks += 1
        await poll()

    monkeypatch.setattr(authenticator._watch, "poll", counted)
    refused = await asyncio.gather(
        *(authenticator.identify(f"Bearer sk-th-{number}") for number in range(500)), return_exceptions=True
    )
    assert all(isinstance(error, AuthenticationError) for error in refused)
    assert looks == 1
    await authenticator.aclose()


@pytest.mark.anyio
async def test_whoever_asks_without_the_request_is_refused_a_key_that_is_bound_to_one(database: Database) -> None:
    """A caller that forgot to hand over where a request came from must not open what it should have closed."""
    await registry.create_tenant(database, "acme")
    bound = await registry.create_key(database, "acme", scope=Scope(ip_ranges=("10.0.0.0/8",)))
    free = await registry.create_key(database, "acme", scope=Scope(models=("small",)))
    authenticator = Authenticator(database)
    await authenticator.start()
    with pytest.raises(PermissionDeniedError):
        authenticator.authenticate(f"Bearer {bound.secret}")
    assert authenticator.authenticate(f"Bearer {free.secret}").key == free.key
    await authenticator.aclose()


@pytest.mark.anyio
async def test_expiry_and_overlap_end_on_time(database: Database) -> None:
    now = time.time()
    await registry.create_tenant(database, "acme")
    expiring = await registry.create_key(database, "acme", expires_at=datetime.fromtimestamp(now + 100, UTC))
    old = await registry.create_key(database, "acme", "ci")
    new = await registry.rotate_key(database, "ci", overlap_s=50)
    authenticator = Authenticator(database, clock=lambda: now)
    await authenticator.start()

    def works(secret: str) -> bool:
        try:
            authenticator.authenticate(f"Bearer {secret}")
        except AuthenticationError:
            return False
        return True

    found = {}
    for later in (0, 40, 60, 99, 101):
        authenticator._clock = lambda later=later: now + later
        found[later] = [works(key.secret) for key in (expiring, old, new)]
    assert found == {
        0: [True, True, True],
        40: [True, True, True],
        60: [True, False, True],
        99: [True, False, True],
        101: [False, False, True],
    }
    await authenticator.aclose()
