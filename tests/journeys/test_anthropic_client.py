"""Anthropic's official client against the engine and both kinds of provider: only base_url and api_key are changed."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.faults.anthropic_behaviours import USAGE
from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.server import Gateway

HELLO: Any = [{"role": "user", "content": "Say hello in one short sentence."}]
TOOL: Any = {
    "name": "weather",
    "description": "The weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
COLD: Any = {"temperature": 0}  # which this client no longer names
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


@pytest.fixture(scope="module")
def claude(gateway: Gateway, key: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key=key, max_retries=0) as official:
        yield official


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def prompt_tokens(message: anthropic.types.Message) -> int:
    usage = message.usage
    return usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)


@pytest.mark.parametrize("model", ["smollm2", "probe/ok", "claude", "auto"])
def test_a_message(claude: anthropic.Anthropic, model: str) -> None:
    message = claude.messages.create(model=model, max_tokens=16, messages=HELLO, system="Be brief.")
    assert (message.type, message.role) == ("message", "assistant")
    assert text_of(message)
    assert message._request_id
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert message.usage.input_tokens > 0
    assert 0 < message.usage.output_tokens <= 16


def test_a_stream_says_the_same(claude: anthropic.Anthropic) -> None:
    wanted: Any = {"model": "smollm2", "max_tokens": 24, "messages": HELLO, "extra_body": COLD}
    wanted["extra_headers"] = {"cache-control": "no-store"}
    whole = claude.messages.create(**wanted)
    with claude.messages.stream(**wanted) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(pieces) > 1
    assert "".join(pieces) == text_of(final) == text_of(whole)
    assert final.stop_reason == whole.stop_reason
    assert prompt_tokens(final) == prompt_tokens(whole)
    assert final.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.parametrize("model", ["probe/ok", "claude", "claude-odd"])
def test_a_providers_stream(claude: anthropic.Anthropic, model: str) -> None:
    with claude.messages.stream(model=model, max_tokens=16, messages=HELLO) as stream:
        final = stream.get_final_message()
    assert text_of(final)
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens == 7


def test_a_tool_that_the_engine_must_call_and_its_result(claude: anthropic.Anthropic) -> None:
    question: Any = {"role": "user", "content": "What is the weather in Paris?"}
    wanted: Any = {"model": "smollm2", "max_tokens": 200, "tools": [TOOL], "extra_body": COLD}
    message = claude.messages.create(**wanted, messages=[question], tool_choice={"type": "tool", "name": "weather"})
    assert message.stop_reason == "tool_use"
    (call,) = message.content
    assert call.type == "tool_use"
    assert call.name == "weather"
    assert isinstance(call.input["city"], str)
    result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Sunny."}]}
    turns: Any = [question, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    wanted["max_tokens"] = 16
    assert claude.messages.create(**wanted, messages=turns, tool_choice={"type": "none"}).stop_reason in (
        "end_turn",
        "max_tokens",
    )


@pytest.mark.parametrize("model", ["probe/tools", "claude-tools"])
def test_parallel_calls_in_a_stream(claude: anthropic.Anthropic, model: str) -> None:
    with claude.messages.stream(model=model, max_tokens=200, messages=HELLO, tools=[TOOL]) as stream:
        final = stream.get_final_message()
    calls = [block for block in final.content if block.type == "tool_use"]
    assert len(calls) >= 2
    assert all(call.input["city"] for call in calls)
    assert final.stop_reason == "tool_use"


def test_a_thought_keeps_its_signature(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(model="claude-thinks", max_tokens=2000, messages=HELLO) as stream:
        thought = stream.get_final_message().content[0]
    assert thought.type == "thinking"
    assert (thought.thinking, thought.signature) == ("Hm.", "c2lnbmVk")


def test_cached_tokens_are_told(claude: anthropic.Anthropic) -> None:
    usage = claude.messages.create(model="claude", max_tokens=16, messages=HELLO).usage
    assert usage.cache_read_input_tokens in (USAGE["cache_read_input_tokens"], 300)
    assert usage.input_tokens == USAGE["input_tokens"]


def test_structured_output_of_the_engine(claude: anthropic.Anthropic) -> None:
    schema: Any = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    message = claude.messages.create(
        model="smollm2",
        max_tokens=40,
        extra_body=COLD,
        messages=[{"role": "user", "content": "Give a small number as JSON."}],
        output_config={"format": {"type": "json_schema", "schema": schema | {"additionalProperties": False}}},
    )
    assert isinstance(json.loads(text_of(message))["n"], int)


def test_an_image_is_refused_by_the_engine_and_reaches_a_provider(
    claude: anthropic.Anthropic, upstream: MisbehavingUpstream
) -> None:
    image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    turns: Any = [{"role": "user", "content": [image, {"type": "text", "text": "What is this?"}]}]
    with pytest.raises(anthropic.BadRequestError, match="images"):
        claude.messages.create(model="smollm2", max_tokens=16, messages=turns)
    claude.messages.create(model="probe/ok", max_tokens=16, messages=turns)
    (part, _) = upstream.of("ok")[-1].json["messages"][0]["content"]
    assert part == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}


@pytest.mark.parametrize("model", ["smollm2", "probe/ok", "claude"])
def test_tokens_are_counted(claude: anthropic.Anthropic, model: str) -> None:
    number = claude.messages.count_tokens(model=model, messages=HELLO, system="Be brief.").input_tokens
    if model == "smollm2":
        message = claude.messages.create(model=model, max_tokens=1, messages=HELLO, system="Be brief.")
        assert number == prompt_tokens(message)
    assert number == 42 if model == "claude" else number > 5


def test_errors(claude: anthropic.Anthropic, gateway: Gateway) -> None:
    with pytest.raises(anthropic.NotFoundError, match="nobody"):
        claude.messages.create(model="nobody", max_tokens=1, messages=HELLO)
    with pytest.raises(anthropic.BadRequestError, match="empty"):
        claude.messages.create(model="smollm2", max_tokens=1, messages=[{"role": "user", "content": ""}])
    with pytest.raises(anthropic.RateLimitError) as limited:
        claude.messages.create(model="claude-429", max_tokens=1, messages=HELLO)
    assert limited.value.response.headers["retry-after"] == "7"
    with pytest.raises(anthropic.OverloadedError):
        claude.messages.create(model="claude-529", max_tokens=1, messages=HELLO)
    with (
        pytest.raises(anthropic.APIStatusError),
        claude.messages.stream(model="claude-breaks", max_tokens=9, messages=HELLO) as stream,
    ):
        stream.get_final_message()
    stranger = anthropic.Anthropic(base_url=gateway.url, api_key="sk-th-stranger", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError) as refused, stranger:
        stranger.messages.create(model="smollm2", max_tokens=1, messages=HELLO)
    assert refused.value.body == {
        "type": "error",
        "error": {"type": "authentication_error", "message": refused.value.body["error"]["message"]},
        "request_id": refused.value.request_id,
    }


def test_models_are_listed_in_its_own_shape(claude: anthropic.Anthropic, gateway: Gateway, key: str) -> None:
    page = claude.models.list()
    listed = list(page)
    assert not page.has_more
    assert (page.first_id, page.last_id) == (listed[0].id, listed[-1].id) == ("auto", page.last_id)
    assert {model.type for model in listed} == {"model"}
    assert all(model.created_at.tzinfo and model.display_name == model.id for model in listed)
    assert claude.models.retrieve("smollm2").id == "smollm2"
    with pytest.raises(anthropic.NotFoundError) as missing:
        claude.models.retrieve("nothing")
    assert missing.value.body["type"] == "error"
    assert missing.value.request_id
    stranger = anthropic.Anthropic(base_url=gateway.url, api_key="sk-th-stranger", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError) as refused, stranger:
        stranger.models.list()
    assert refused.value.body["error"]["type"] == "authentication_error"
    assert json.loads(gateway.get("/v1/models", key)[2])["object"] == "list"


def test_a_bearer_token_works_as_well(gateway: Gateway, key: str) -> None:
    with anthropic.Anthropic(base_url=gateway.url, auth_token=key, api_key=None, max_retries=0) as bearer:
        assert bearer.messages.create(model="probe/ok", max_tokens=9, messages=HELLO).content


def test_the_key_header_of_anthropic_works_everywhere(gateway: Gateway, key: str) -> None:
    body = {"model": "probe/ok", "messages": HELLO}
    assert gateway.post("/v1/chat/completions", body, x_api_key=key)[0] == 200
    assert gateway.post("/v1/chat/completions", body, x_api_key="sk-th-stranger")[0] == 401


@pytest.mark.parametrize(
    ("path", "method", "status", "kind"),
    [
        ("/v1/messages/batches", "POST", 404, "not_found_error"),
        ("/v1/messages/count_tokens/x", "POST", 404, "not_found_error"),
        ("/v1/messages", "GET", 405, "invalid_request_error"),
        ("/v1/messages/count_tokens", "GET", 405, "invalid_request_error"),
    ],
)
def test_what_is_not_there_is_told_in_anthropics_shape(
    gateway: Gateway, key: str, path: str, method: str, status: int, kind: str
) -> None:
    got, headers, body = gateway.get(path, key) if method == "GET" else gateway.post(path, {}, key)
    told = json.loads(body)
    assert (got, told["type"], told["error"]["type"]) == (status, "error", kind)
    assert told["request_id"] == headers["x-request-id"]
