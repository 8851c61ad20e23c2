"""What is refused: the proper 4xx in OpenAI's shape, `param` filled, never a 500, and nothing reaches a backend."""

import json
import socket
from typing import Any

import openai
import pytest

from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.server import Gateway

USER = [{"role": "user", "content": "hi"}]
CHAT = {"model": "probe/ok", "messages": USER}


def refused(reply: tuple[int, dict[str, str], bytes]) -> tuple[int, Any, Any]:
    """Status, code and param of an error that has OpenAI's shape."""
    status, headers, raw = reply
    assert headers["content-type"].startswith("application/json")
    error = json.loads(raw)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    return status, error["code"], error["param"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"{not json", 400, None),
        (b"[]", 400, None),
        (b"\xff\xfe", 400, None),
        (b"", 400, None),
        (b'{"a":' * 5000, 400, None),
        ({"messages": USER}, 400, "model"),
        ({"model": 3, "messages": USER}, 400, "model"),
        ({"model": "probe/ok"}, 400, "messages"),
        (CHAT | {"messages": []}, 400, "messages"),
        (CHAT | {"messages": "hi"}, 400, "messages"),
        (CHAT | {"messages": [{"role": "boss", "content": "hi"}]}, 400, "messages[0].role"),
        (CHAT | {"max_tokens": -1}, 400, "max_tokens"),
        (CHAT | {"max_tokens": "many"}, 400, "max_tokens"),
        (CHAT | {"temperature": 3}, 400, "temperature"),
        (CHAT | {"top_p": -0.5}, 400, "top_p"),
        (CHAT | {"n": 0}, 400, "n"),
        (CHAT | {"stop": ["a", "b", "c", "d", "e"]}, 400, "stop"),
        (CHAT | {"stream_options": {"include_usage": True}}, 400, "stream_options"),
        (CHAT | {"model": "no-such-model"}, 404, "model"),
        (CHAT | {"model": "big"}, 404, "model"),  # its provider has no key
        (CHAT | {"model": "minilm"}, 404, "model"),  # an embedding model
    ],
)
def test_bad_chat_requests(
    gateway: Gateway, key: str, upstream: MisbehavingUpstream, body: Any, status: int, param: str | None
) -> None:
    before = len(upstream.of("ok"))
    got = refused(gateway.post("/v1/chat/completions", body, key))
    assert (got[0], got[2]) == (status, param)
    assert len(upstream.of("ok")) == before


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong", "Basic abc", "Bearer sk-th-" + "x" * 40])
def test_a_bad_key(gateway: Gateway, authorization: str) -> None:
    assert refused(gateway.post("/v1/chat/completions", CHAT, authorization=authorization))[:2] == (
        401,
        "invalid_api_key",
    )
    assert "x" * 40 not in gateway.log


def test_the_official_client_raises_its_own_errors(client: openai.OpenAI, gateway: Gateway) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="smollm2", messages=USER, max_tokens=-1)
    assert bad.value.param == "max_tokens"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nothing", messages=USER)
    with openai.OpenAI(base_url=gateway.base_url, api_key="sk-th-wrong") as stranger:
        with pytest.raises(openai.AuthenticationError):
            stranger.models.list()


def test_a_prompt_longer_than_the_context(gateway: Gateway, key: str) -> None:
    body = {"model": "smollm2", "messages": [{"role": "user", "content": "word " * 10_000}], "max_tokens": 1}
    status, headers, raw = gateway.post("/v1/chat/completions", body, key)
    assert refused((status, headers, raw)) == (400, "context_length_exceeded", "messages")
    assert headers["x-tollhouse-attempts"] == "0"  # refused before any work: no call of a model
    assert "8192" in json.loads(raw)["error"]["message"]


def test_what_the_bundled_engine_cannot_do_is_named(gateway: Gateway, key: str) -> None:
    body = {"model": "smollm2", "messages": USER, "functions": [{"name": "f"}]}
    assert refused(gateway.post("/v1/chat/completions", body, key)) == (400, "unsupported_parameter", "functions")


def test_an_upstreams_error_page_becomes_an_error_that_clients_know(gateway: Gateway, key: str) -> None:
    got = refused(gateway.post("/v1/chat/completions", CHAT | {"model": "probe/html-400"}, key))
    assert got == (400, "http_400", None)


def test_an_unknown_tier(gateway: Gateway, key: str) -> None:
    body = {"model": "auto", "messages": USER}
    got = refused(gateway.post("/v1/chat/completions", body, key, x_tollhouse_tier="gold"))
    assert got == (400, "unknown_tier", "x-tollhouse-tier")


def test_a_body_of_100_megabytes(gateway: Gateway, key: str) -> None:
    """Announced, and refused before it is sent; a client that sends it all the same is not read to the end."""
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100000000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as connection:
        connection.sendall(head.encode() + b'{"model":"')
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"code":"request_too_large"' in answer


@pytest.mark.parametrize(("path", "code"), [("/v1/nothing", "unknown_url"), ("/v1/chat", "unknown_url")])
def test_unknown_paths(gateway: Gateway, key: str, path: str, code: str) -> None:
    assert refused(gateway.get(path, key))[:2] == (404, code)


def test_wrong_methods(gateway: Gateway, key: str) -> None:
    assert refused(gateway.get("/v1/chat/completions", key))[:2] == (405, "method_not_allowed")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "minilm"}, "input"),
        ({"model": "minilm", "input": ""}, "input"),
        ({"model": "minilm", "input": []}, "input"),
        ({"model": "minilm", "input": {"a": 1}}, "input"),
        ({"model": "minilm", "input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"model": "minilm", "input": "a", "dimensions": 7}, "dimensions"),
    ],
)
def test_bad_embedding_requests(gateway: Gateway, key: str, body: Any, param: str) -> None:
    status, _, got = refused(gateway.post("/v1/embeddings", body, key))
    assert (status, got) == (400, param)
