"""What the bundled engine lacks, and what belongs to another endpoint, is refused by name."""

from typing import Any

import pytest

from gateway.errors import InvalidRequestError
from gateway.upstream.engine_backend import EngineBackend
from gateway.upstream.types import Outbound
from tests.gateway.engine_requests import chat, completion, embedding, whole

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("fields", "param", "word"),
    [
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
            "messages",
            "images",
        ),
        ({"modalities": ["audio"]}, "messages", "audio"),
        ({"functions": [{"name": "f"}]}, "functions", "functions"),
        ({"web_search_options": {}}, "web_search_options", "web_search_options"),
        ({"moderation": {"model": "omni-moderation-latest"}}, "moderation", "moderation"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools", "custom"),
        ({"messages": [{"role": "function", "name": "f", "content": "1"}]}, "messages", "role 'function'"),
    ],
)
async def test_what_the_engine_lacks_is_refused_by_name(
    backend: EngineBackend, fields: dict[str, Any], param: str, word: str
) -> None:
    with pytest.raises(InvalidRequestError, match=word) as caught:
        await backend.send(chat(**fields))
    assert (caught.value.param, caught.value.code) == (param, "unsupported_parameter")


async def test_a_suffix_is_refused_by_name(backend: EngineBackend) -> None:
    with pytest.raises(InvalidRequestError, match="suffix"):
        await backend.send(completion("x", suffix="end"))


@pytest.mark.parametrize(
    ("outbound", "param"),
    [
        (chat(best_of=2), "best_of"),
        (chat(best_of="many"), "best_of"),
        (chat(echo=True), "echo"),
        (chat(suffix="x"), "suffix"),
        (completion("x", response_format="json"), "response_format"),
        (completion("x", tools=[{}]), "tools"),
        (completion("x", top_logprobs=2), "top_logprobs"),
        (embedding("x", prompt="x"), "prompt"),
    ],
)
async def test_a_field_of_another_endpoint_is_refused_by_name(
    backend: EngineBackend, outbound: Outbound, param: str
) -> None:
    with pytest.raises(InvalidRequestError, match=f"Unrecognized request argument supplied: {param}") as caught:
        await backend.send(outbound)
    assert caught.value.param == param


async def test_fields_at_their_defaults_are_no_reason_to_refuse(backend: EngineBackend) -> None:
    neutral = {"frequency_penalty": 0, "presence_penalty": None, "logit_bias": {}, "tools": [], "logprobs": False}
    whole(await backend.send(chat(max_tokens=1, response_format={"type": "text"}, **neutral)))
    reply = await backend.send(completion("x", max_tokens=1, suffix=None, best_of=1))
    whole(reply, "CreateCompletionResponse")


@pytest.mark.parametrize("fields", [{}, {"echo": True}, {"echo": True, "stream": True}])
async def test_a_token_that_does_not_exist_is_refused(backend: EngineBackend, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await backend.send(completion([1, 2**30], **fields))
    assert caught.value.param == "prompt"


async def test_a_request_for_countless_answers_is_refused(backend: EngineBackend) -> None:
    with pytest.raises(InvalidRequestError, match="1024") as caught:
        await backend.send(completion(["x"] * 2048, n=128))
    assert caught.value.param == "n"
