"""Server-side request forgery: no way of writing a forbidden address gets past the guard, nor a name that changes."""

import asyncio
import ipaddress
import socket
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import parse
from gateway.config_check import ConfigError
from gateway.upstream.address_guard import ForbiddenAddress, check_address, check_url, resolve
from gateway.upstream.transport import Transport

METADATA = ["169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fd20:ce::254",
            "100.100.100.200", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"]  # fmt: skip
PRIVATE = ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0", "::1", "::", "fd12::1",
           "::ffff:10.0.0.1", "64:ff9b::a00:1", "224.0.0.1", "255.255.255.255"]  # fmt: skip
PUBLIC = ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", METADATA)
def test_a_clouds_metadata_is_forbidden_to_all(address: str) -> None:
    for guard in ("public", "not-metadata"):
        with pytest.raises(ForbiddenAddress, match=r"metadata|public"):
            check_address(address, guard)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_forbidden_to_webhooks_and_normal_for_providers(address: str) -> None:
    with pytest.raises(ForbiddenAddress, match="not a public address"):
        check_address(address, "public")
    check_address(address, "not-metadata")


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_pass(address: str) -> None:
    check_address(address, "public")


@pytest.mark.parametrize(
    "host",
    ["2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "[::ffff:a9fe:a9fe]", "169.254.169.254"],
)
def test_however_an_address_is_written(host: str) -> None:
    with pytest.raises(ForbiddenAddress, match="metadata"):
        check_url(f"http://{host}:8080/latest", "not-metadata")


@pytest.mark.parametrize(
    "url",
    ["http://user@example.com/", "http://user:pw@example.com/", "ftp://example.com/", "file:///etc/passwd", "//x/", "",
     "http://", "http://example.com:99999/", "http://[::1/", "gopher://x", "http://localhost/", "http://a.localhost/"],
)  # fmt: skip
def test_urls_that_no_webhook_may_have(url: str) -> None:
    with pytest.raises(ForbiddenAddress):
        check_url(url, "public")


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_means_the_same_in_every_dress(address: ipaddress.IPv4Address) -> None:
    def verdict(text: str) -> bool:
        try:
            check_address(text, "public")
        except ForbiddenAddress:
            return False
        return True

    inside = [f"::ffff:{address}", str(ipaddress.IPv6Address((0x64FF9B << 96) | int(address)))]
    assert {verdict(text) for text in inside} <= {verdict(str(address)), False}
    if not verdict(str(address)):
        assert not any(map(verdict, inside))
        with pytest.raises(ForbiddenAddress):
            check_url(f"http://{int(address)}/", "public")


def test_a_config_may_not_point_at_metadata() -> None:
    text = """
[[provider]]
name = "up"
base_url = "http://169.254.169.254/v1"
[webhooks]
url = "http://10.0.0.5/hook"
[[model]]
name = "m"
provider = "up"
"""
    with pytest.raises(ConfigError) as refused:
        parse(text.encode())
    faults = "\n".join(refused.value.faults)
    assert "provider[0] (up).base_url: 169.254.169.254" in faults
    assert "webhooks.url: 10.0.0.5 is not a public address" in faults
    local = text.replace("169.254.169.254", "192.168.0.9") + "[security]\nallow_private_webhooks = true\n"
    assert parse(local.encode()).webhooks.url == "http://10.0.0.5/hook"


@pytest.mark.anyio
async def test_a_name_is_checked_where_it_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: innocent when it is configured, the machine itself a moment later. It is resolved once."""
    answers = [["8.8.8.8"], ["127.0.0.1"], ["8.8.8.8", "169.254.169.254"]]
    asked = []

    async def getaddrinfo(self: Any, host: str, port: int, **kwargs: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers.pop(0)]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    assert await resolve("rebind.example", 80, "public") == ["8.8.8.8"]
    for word in ("not a public address", "metadata"):
        async with httpx.AsyncClient(transport=Transport(guard="public")) as client:
            with pytest.raises(httpx.ConnectError, match=word):
                await client.get("http://rebind.example/")
    assert asked == ["rebind.example"] * 3


@pytest.mark.anyio
async def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        told: list[str] = []
        real = asyncio.BaseEventLoop.getaddrinfo

        async def getaddrinfo(self: Any, host: str, port: int, **kwargs: Any) -> Any:
            told.append(host)
            return await real(self, "127.0.0.1" if host == "named.example" else host, port, **kwargs)

        monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
        async with httpx.AsyncClient(transport=Transport()) as client:
            assert (await client.get(f"http://named.example:{port}/")).text == "ok"
        assert told.count("named.example") == 1
