"""Two gateways on one PostgreSQL, without Redis: what an administrator takes away is gone at both within a second."""

import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.probes import PROBE
from tests.support.server import Gateway, two_gateways

ADMIN_KEY = "k" * 40
CONFIG = (
    """
[server]
trusted_proxies = ["127.0.0.0/8"]
[store]
database_url = "{database}"
[cache]
semantic = false
[[provider]]
name = "upstream"
base_url = "{upstream}"
"""
    + PROBE
)
SOON_S = 5.0  # the promise is one second; the machine that tests may be busy
BODY = {"model": "probe/ok", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture(scope="module")
def pair(
    upstream: MisbehavingUpstream, _shared_postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Gateway, Gateway]]:
    config = CONFIG.format(database=_shared_postgres.new_database(), upstream=upstream.base_url)
    with two_gateways(config, tmp_path_factory.mktemp("pair"), TOLLHOUSE_ADMIN_KEY=ADMIN_KEY) as both:
        yield both


def status(gateway: Gateway, key: str, **headers: str) -> int:
    return gateway.post("/v1/chat/completions", BODY, key, **headers)[0]


def soon(pair: tuple[Gateway, Gateway], key: str, wanted: int) -> None:
    until = time.monotonic() + SOON_S
    while [status(gateway, key) for gateway in pair] != [wanted, wanted]:
        assert time.monotonic() < until, f"not {wanted} everywhere after {SOON_S} s"
        time.sleep(0.05)


def act(gateway: Gateway, method: str, path: str, body: Any = None) -> Any:
    """One call of the admin API."""
    headers = {"authorization": f"Bearer {ADMIN_KEY}", "content-type": "application/json"}
    raw = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"{gateway.url}/admin{path}", data=raw, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def test_what_is_taken_away_at_one_is_gone_at_both(pair: tuple[Gateway, Gateway]) -> None:
    first, second = pair
    act(first, "POST", "/tenants", {"name": "acme"})
    act(first, "POST", "/tenants/acme/teams", {"name": "lab"})
    key = act(first, "POST", "/keys", {"tenant": "acme", "name": "ci", "team": "lab"})["secret"]
    assert [status(gateway, key) for gateway in pair] == [200, 200]  # at once, without waiting
    for path in ("/keys/ci", "/tenants/acme/teams/lab", "/tenants/acme"):
        act(first, "PATCH", path, {"disabled": True})
        soon(pair, key, 401)
        act(second, "PATCH", path, {"disabled": False})
        soon(pair, key, 200)
    act(first, "PATCH", "/keys/ci", {"models": ["other/*"]})
    soon(pair, key, 403)
    act(second, "PATCH", "/keys/ci", {"models": None})
    soon(pair, key, 200)
    first.tollhouse("keys", "revoke", "ci")  # by a command, which is a process of its own
    soon(pair, key, 401)
    act(first, "PATCH", "/keys/ci", {"disabled": False})
    rotated = act(second, "POST", "/keys/ci/rotate", {"overlap_s": 0})["secret"]
    soon(pair, key, 401)
    assert [status(gateway, rotated) for gateway in pair] == [200, 200]


def test_an_address_is_the_connections_or_what_a_trusted_proxy_says(pair: tuple[Gateway, Gateway]) -> None:
    first, _ = pair
    act(first, "POST", "/tenants", {"name": "globex"})
    ranges = ("127.0.0.0/8", "203.0.113.0/24")
    local, office = (
        act(first, "POST", "/keys", {"tenant": "globex", "ip_ranges": [each]})["secret"] for each in ranges
    )
    assert [status(first, key) for key in (local, office)] == [200, 403]
    assert status(first, office, x_forwarded_for="203.0.113.9") == 200
    assert status(first, local, x_forwarded_for="203.0.113.9") == 403


def test_an_act_by_api_is_traced_to_where_it_came_from(pair: tuple[Gateway, Gateway]) -> None:
    first, second = pair
    made = first.post("/admin/tenants", {"name": "initech"}, ADMIN_KEY, x_forwarded_for="198.51.100.4")
    assert made[0] == 201
    assert "198.51.100.4" in second.tollhouse("audit", "--tenant", "initech")
