"""A provider of the Messages API as the pipeline sees it: its addresses, its headers, and how it counts."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.config import ProviderConfig
from gateway.errors import InvalidRequestError, UpstreamError
from gateway.upstream.anthropic_backend import AnthropicBackend
from gateway.upstream.errors import ProtocolFailure
from gateway.upstream.types import CountsTokens, Outbound
from gateway.wire.chat import parse_chat
from gateway.wire.messages.request import parse_messages
from tests.faults.anthropic_behaviours import CLAUDES
from tests.faults.misbehaving import MisbehavingUpstream

pytestmark = pytest.mark.anyio


@pytest.fixture
def claudes(upstream: MisbehavingUpstream) -> MisbehavingUpstream:
    for name, script in CLAUDES.items():
        upstream.on(name, script)
    return upstream


@pytest.fixture
async def backend(anyio_backend: Any, claudes: MisbehavingUpstream) -> AsyncIterator[AnthropicBackend]:
    made = AnthropicBackend(ProviderConfig(name="a", kind="anthropic", base_url=claudes.base_url))
    yield made
    await made.aclose()


def chat(model: str, **fields: Any) -> Outbound:
    body = {"model": "ours", "messages": [{"role": "user", "content": "Hi"}]} | fields
    return Outbound(request_id="r1", inference=parse_chat(json.dumps(body).encode()), upstream_model=model)


def message(model: str) -> Outbound:
    raw = b'{"model":"ours", "messages":[{"role":"user","content":"Hi"}],"x_new":1}'
    return Outbound(request_id="r1", inference=parse_messages(raw, counting=True), upstream_model=model)


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
async def test_the_base_url_may_end_as_anthropics_clients_write_it(claudes: MisbehavingUpstream, ending: str) -> None:
    base_url = claudes.base_url.removesuffix("/v1") + ending
    backend = AnthropicBackend(ProviderConfig(name="a", kind="anthropic", base_url=base_url))
    try:
        assert (await backend.send(chat("claude"))).status == 200
        await backend.check()
    finally:
        await backend.aclose()
    assert [request.path for request in claudes.received] == ["/v1/messages", "/v1/models"]


async def test_the_operators_headers_go_along(claudes: MisbehavingUpstream) -> None:
    headers = {"anthropic-beta": "b1"}
    backend = AnthropicBackend(ProviderConfig(name="a", kind="anthropic", base_url=claudes.base_url, headers=headers))
    try:
        await backend.send(chat("claude"))
    finally:
        await backend.aclose()
    (sent,) = claudes.received
    assert sent.headers["anthropic-beta"] == "b1"
    assert sent.headers["anthropic-version"] == "2023-06-01"
    assert "x-api-key" not in sent.headers  # there is none


async def test_it_counts_its_own_clients_requests_as_they_are(
    backend: AnthropicBackend, claudes: MisbehavingUpstream
) -> None:
    assert isinstance(backend, CountsTokens)
    assert await backend.count_tokens(message("claude")) == 42
    (sent,) = claudes.received
    assert sent.path == "/v1/messages/count_tokens"
    assert sent.raw == b'{"model":"claude", "messages":[{"role":"user","content":"Hi"}],"x_new":1}'


async def test_of_a_chat_it_counts_what_has_tokens(backend: AnthropicBackend, claudes: MisbehavingUpstream) -> None:
    await backend.count_tokens(chat("claude", temperature=0.5, stop="x"))
    assert set(claudes.received[0].json) == {"model", "messages"}


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("claude-400", InvalidRequestError),
        ("claude-401", UpstreamError),
        ("claude-529", UpstreamError),
        ("claude-nonsense", ProtocolFailure),
    ],
)
async def test_what_it_cant_count(backend: AnthropicBackend, model: str, error: type[Exception]) -> None:
    with pytest.raises(error) as refused:
        await backend.count_tokens(message(model))
    assert "sk-upstream-secret" not in str(refused.value)
