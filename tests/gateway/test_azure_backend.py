"""Azure OpenAI behind the gateway: its URLs and key, its content filter's prelude, its errors and its waits."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.config import ProviderConfig, parse
from gateway.config_check import ConfigError
from gateway.errors import NotFoundError
from gateway.upstream.azure_backend import AzureBackend
from gateway.upstream.first_token import is_prelude
from gateway.upstream.types import Outbound
from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completion
from gateway.wire.embeddings import parse_embedding
from tests.faults.misbehaving import MisbehavingUpstream, Wire
from tests.faults.misbehaviours import ROLE, STOP, TOKEN, chunk, completion
from tests.gateway.conftest import OpenGate
from tests.support.in_process import CONFIG, chat

pytestmark = pytest.mark.anyio

FILTERS = {"hate": {"filtered": False, "severity": "safe"}}
PRELUDE = {
    "id": "",
    "object": "",
    "created": 0,
    "model": "",
    "choices": [],
    "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": FILTERS}],
}
REFUSAL = {
    "error": {
        "message": "The response was filtered.",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": FILTERS},
    }
}
AZURE = """
[[provider]]
name = "azure"
kind = "azure"
base_url = "{base}"
max_retries = 0
[[model]]
name = "azure/*"
provider = "azure"
"""
TIER = """
[[model]]
name = "fragile"
provider = "azure"
upstream_name = "dies"
[tier.only]
models = ["fragile", "dear"]
"""


@pytest.fixture
async def backend(upstream: MisbehavingUpstream, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AzureBackend]:
    monkeypatch.setenv("AZURE_KEY", "secret")
    made = AzureBackend(
        ProviderConfig(
            name="azure",
            kind="azure",
            base_url=base(upstream),
            api_key_env="AZURE_KEY",
            api_version="2025-01-01-preview",
        )
    )
    yield made
    await made.aclose()


def base(upstream: MisbehavingUpstream) -> str:
    return upstream.base_url.removesuffix("/v1")


@pytest.mark.parametrize(
    ("parse_body", "body", "path"),
    [
        (parse_chat, chat("ours"), "chat/completions"),
        (parse_completion, {"model": "ours", "prompt": "x"}, "completions"),
        (parse_embedding, {"model": "ours", "input": "x"}, "embeddings"),
    ],
)
async def test_the_deployment_is_in_the_path_and_the_version_in_the_query(
    backend: AzureBackend, upstream: MisbehavingUpstream, parse_body: Any, body: dict[str, Any], path: str
) -> None:
    for _ in range(2):
        inference = parse_body(json.dumps(body).encode())
        reply = await backend.send(Outbound(request_id="r", inference=inference, upstream_model="my deployment/ok"))
        assert reply.status == 200
    received = upstream.received[-1]
    assert received.path == f"/openai/deployments/my%20deployment%2Fok/{path}?api-version=2025-01-01-preview"
    assert received.headers["api-key"] == "secret"
    assert "authorization" not in received.headers


async def test_the_prelude_of_the_content_filter_is_no_token_and_no_end() -> None:
    assert is_prelude(json.dumps(PRELUDE).encode())
    assert not is_prelude(json.dumps(chunk(usage={"prompt_tokens": 1})).encode())
    assert not is_prelude(json.dumps(TOKEN).encode())
    assert not is_prelude(json.dumps(STOP).encode())


async def test_the_prelude_passes_and_another_model_may_still_answer_behind_it(
    gate_with: OpenGate, upstream: MisbehavingUpstream
) -> None:
    async def filtered(wire: Wire) -> None:
        await wire.start_events()
        for event in (PRELUDE, ROLE, TOKEN, STOP):
            await wire.event(event)
        await wire.end()

    async def dies(wire: Wire) -> None:
        await wire.start_events()
        await wire.event(PRELUDE, 0.05)
        wire.reset()

    upstream.on("filtered", filtered)
    upstream.on("dies", dies)
    gate = await gate_with(CONFIG + AZURE.replace("{base}", base(upstream)) + TIER)
    line = await gate.ask(chat("azure/filtered", stream=True))
    assert line.events[0] == PRELUDE
    assert line.text == "x"
    fallback = await gate.ask(chat("auto", stream=True))
    assert (fallback.status, fallback.text) == (200, "xx")
    assert fallback["x-tollhouse-model"] == "dear"


async def test_its_errors_pass_as_they_came(gate_with: OpenGate, upstream: MisbehavingUpstream) -> None:
    async def refuses(wire: Wire) -> None:
        await wire.json(REFUSAL, "400 Bad Request")

    async def busy(wire: Wire) -> None:
        body = {"error": {"code": "429", "message": "Requests have exceeded the rate limit."}}
        await wire.json(body, "429 Too Many Requests", {"retry-after-ms": "70000", "retry-after": "70"})

    upstream.on("refuses", refuses)
    upstream.on("busy", busy)
    gate = await gate_with(CONFIG + AZURE.replace("{base}", base(upstream)))
    line = await gate.ask(chat("azure/refuses"))
    assert (line.status, line.json) == (400, REFUSAL)
    line = await gate.ask(chat("azure/busy"))
    assert (line.status, line["retry-after-ms"], line["retry-after"]) == (429, "70000", "70")


async def test_milliseconds_to_wait_are_waited(gate_with: OpenGate, upstream: MisbehavingUpstream) -> None:
    async def once(wire: Wire) -> None:
        if wire.index:
            await wire.json(completion("at last"))
        else:
            await wire.json(REFUSAL, "429 Too Many Requests", {"retry-after-ms": "150"})

    upstream.on("once", once)
    config = CONFIG + AZURE.replace("{base}", base(upstream)).replace("max_retries = 0", "max_retries = 1")
    gate = await gate_with(config)
    line = await gate.ask(chat("azure/once"))
    assert (line.status, line.json["choices"][0]["message"]["content"]) == (200, "at last")
    first, second = upstream.of("once")
    assert second.arrived - first.arrived >= 0.14


def test_a_base_url_of_another_shape_is_refused() -> None:
    for path in ("/openai", "/openai/v1"):
        with pytest.raises(ConfigError, match="without /openai"):
            parse(AZURE.replace("{base}", f"https://x.openai.azure.com{path}").encode())


@pytest.mark.parametrize("name", [".", ".."])
async def test_a_deployment_can_not_lead_out_of_its_folder(
    backend: AzureBackend, upstream: MisbehavingUpstream, name: str
) -> None:
    inference = parse_chat(json.dumps(chat("ours")).encode())
    with pytest.raises(NotFoundError):
        await backend.send(Outbound(request_id="r", inference=inference, upstream_model=name))
    assert upstream.received == []
