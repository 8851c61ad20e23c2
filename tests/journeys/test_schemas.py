"""Whatever Tollhouse itself says, whole or streamed, fits OpenAI's schemas: by the engine, from the cache, translated
from another API, and when it refuses. Bodies and events are taken from the wire, as a strict client would.
"""

import json
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.openai_schemas import conforms
from tests.faults.anthropic_behaviours import WHOLE
from tests.support.server import Gateway

HELLO = [{"role": "user", "content": "Name three colours."}]
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
NO_STORE = {"cache_control": "no-store"}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}}},
    },
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def fits(path: str, raw: bytes, *, chunk: bool = False) -> Any:
    """What was said, once it was found to be what OpenAI would say."""
    told = json.loads(raw)
    if path == "chat/completions":
        return conforms(told, "CreateChatCompletionStreamResponse" if chunk else "CreateChatCompletionResponse")
    conforms(_mended(json.loads(raw)), "CreateCompletionResponse")
    return told


def _mended(told: Any) -> Any:
    """Text completions without what OpenAI sends and its schema forgets: the nulls of a stream and of a first token."""
    if told.get("usage", {}) is None:
        del told["usage"]
    for choice in told["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"
        logprobs = choice["logprobs"]
        if logprobs is not None and logprobs["token_logprobs"][:1] == [None]:
            logprobs["token_logprobs"][0] = 0.0
            if logprobs["top_logprobs"] is not None:
                assert logprobs["top_logprobs"][0] is None
                logprobs["top_logprobs"][0] = {}
    return told


class Client:
    """A client that takes nothing that OpenAI would not send."""

    def __init__(self, gateway: Gateway, key: str) -> None:
        self._gateway = gateway
        self._key = key

    def whole(self, path: str, body: dict[str, Any], **headers: str) -> tuple[dict[str, str], Any]:
        status, got, raw = self._gateway.post(f"/v1/{path}", body, self._key, **headers)
        assert status == 200, raw
        return got, fits(path, raw)

    def stream(self, path: str, body: dict[str, Any], **headers: str) -> tuple[dict[str, str], list[Any]]:
        """The stream's chunks; the last, and no other, has the usage."""
        status, got, raw = self._gateway.post(f"/v1/{path}", body | USAGE, self._key, **headers)
        assert status == 200, raw
        *events, done = [line.removeprefix(b"data: ") for line in raw.splitlines() if line.startswith(b"data: ")]
        assert done == b"[DONE]"
        chunks = [fits(path, event, chunk=True) for event in events]
        assert [bool(chunk.get("usage")) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert chunks[-1]["choices"] == []
        assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
        return got, chunks


@pytest.fixture(scope="module")
def strict(gateway: Gateway, key: str) -> Client:
    return Client(gateway, key)


CHATS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cut": {"max_tokens": 1},
    "stopped": {"stop": [" ", "a"]},
    "choices": {"n": 3, "temperature": 1.0},
    "seeded": {"seed": 7, "temperature": 1.0},
    "biased": {"logit_bias": {"100": -100, "200": 5}},
    "logprobs": {"logprobs": True},
    "top logprobs": {"logprobs": True, "top_logprobs": 3},
    "a call": {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 60},
    "a call and logprobs": {"tools": [TOOL], "tool_choice": "required", "logprobs": True, "max_tokens": 60},
    "words beside tools": {"tools": [TOOL], "tool_choice": "none"},
    "json": {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
}


@pytest.mark.parametrize("name", CHATS)
def test_the_engines_chats(strict: Client, name: str) -> None:
    body = {"model": "smollm2", "messages": HELLO, "max_tokens": 8, "temperature": 0} | CHATS[name]
    _, whole = strict.whole("chat/completions", body, **NO_STORE)
    _, chunks = strict.stream("chat/completions", body, **NO_STORE)
    indexes = range(body.get("n", 1))
    assert [choice["index"] for choice in whole["choices"]] == list(indexes)
    ends = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    assert len(ends) == len(indexes)
    if body["temperature"] == 0 or "seed" in body:
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        said = "".join(delta.get("content") or "" for delta in deltas)
        assert said == (whole["choices"][0]["message"]["content"] or "")
        assert ends == [whole["choices"][0]["finish_reason"]]


COMPLETIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "several prompts": {"prompt": ["One", "Two"]},
    "tokens": {"prompt": [[1, 2, 3], [4]]},
    "choices": {"n": 2, "best_of": 3, "temperature": 1.0, "seed": 1},
    "logprobs": {"logprobs": 2},
    "echo": {"echo": True, "logprobs": 0},
    "scored": {"echo": True, "logprobs": 1, "max_tokens": 0},
    "stopped": {"stop": "e"},
}


@pytest.mark.parametrize("name", COMPLETIONS)
def test_the_engines_completions(strict: Client, name: str) -> None:
    body = {"model": "smollm2", "prompt": "Once upon", "max_tokens": 6, "temperature": 0} | COMPLETIONS[name]
    _, whole = strict.whole("completions", body, **NO_STORE)
    if "best_of" in body:
        return  # what is chosen at the end can't be streamed
    _, chunks = strict.stream("completions", body, **NO_STORE)
    for choice in whole["choices"]:
        texts = [part["text"] for chunk in chunks for part in chunk["choices"] if part["index"] == choice["index"]]
        assert "".join(texts) == choice["text"]


@pytest.mark.parametrize("model", ["minilm", "embed/ok"])
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_embeddings(gateway: Gateway, key: str, model: str, encoding: str) -> None:
    _, _, raw = gateway.post("/v1/embeddings", {"model": model, "input": ["a"], "encoding_format": encoding}, key)
    answer = json.loads(raw)
    if encoding == "base64":  # which OpenAI's schema forgets
        assert isinstance(answer["data"][0].pop("embedding"), str)
        answer["data"][0]["embedding"] = [0.0]
    conforms(answer, "CreateEmbeddingResponse")


def test_models(gateway: Gateway, key: str) -> None:
    listed = conforms(gateway.get("/v1/models", key)[2], "ListModelsResponse")
    for model in listed["data"]:
        conforms(gateway.get(f"/v1/models/{model['id']}", key)[2], "Model")


@pytest.mark.parametrize("behaviour", [name for name in WHOLE if name != "claude-odd"])
def test_chats_translated_from_anthropics_api(strict: Client, behaviour: str) -> None:
    body = {"model": behaviour, "messages": HELLO}
    _, whole = strict.whole("chat/completions", body, **NO_STORE)
    _, chunks = strict.stream("chat/completions", body, **NO_STORE)
    assert chunks[-1]["usage"] == whole["usage"]


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("smollm2", {"stop": "."}),
        ("smollm2", {"stop": ".", "logprobs": True, "top_logprobs": 1}),
        ("smollm2", {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}),
        ("claude", {}),
        ("claude-thinks", {}),
        ("probe/good", {}),
    ],
)
@pytest.mark.parametrize("first", ["whole", "stream"])
def test_what_was_kept_is_told_again_either_way(strict: Client, model: str, fields: dict[str, Any], first: str) -> None:
    """Exact hits, as a whole and as a stream, of what came as a whole and of what came as a stream."""
    place = {"x_tollhouse_namespace": str(uuid.uuid4())}
    body = {"model": model, "messages": HELLO, "max_tokens": 100, "temperature": 0} | fields
    headers, _ = getattr(strict, first)("chat/completions", body, **place)
    assert headers["x-tollhouse-cache"] == "miss"
    headers, whole = strict.whole("chat/completions", body, **place)
    assert whole["choices"][0]["finish_reason"] == "stop"  # what is cut is never kept
    assert headers["x-tollhouse-cache"] == "hit-exact"
    headers, chunks = strict.stream("chat/completions", body, **place)
    assert headers["x-tollhouse-cache"] == "hit-exact"
    assert chunks[-1]["usage"] == whole["usage"]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == whole["choices"][0]["message"]["content"]


def test_a_semantic_hit_is_told_either_way(strict: Client) -> None:
    place = {"x_tollhouse_namespace": str(uuid.uuid4())}

    def asked(text: str) -> dict[str, Any]:
        return {"model": "probe/good", "messages": [{"role": "user", "content": text}], "temperature": 0}

    strict.whole("chat/completions", asked("How do I reset my password?"), **place)
    for tell in (strict.whole, strict.stream):
        headers, _ = tell("chat/completions", asked("How can I reset my password?"), **place)
        assert headers["x-tollhouse-cache"] == "hit-semantic"


FIELDS: dict[str, Any] = {
    "n": st.integers(1, 3),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "temperature": st.sampled_from([0, 0.5, 2]),
    "top_p": st.sampled_from([0, 0.3, 1]),
    "max_tokens": st.integers(1, 4),
    "stop": st.sampled_from([".", ["e", "\n"]]),
    "frequency_penalty": st.sampled_from([-2, 0.5]),
    "presence_penalty": st.sampled_from([2, -0.5]),
    "logit_bias": st.dictionaries(st.integers(0, 1000).map(str), st.integers(-100, 100), max_size=3),
    "logprobs": st.just(True),
    "response_format": st.sampled_from([{"type": "text"}, {"type": "json_object"}]),
    "user": st.text(max_size=5),
    "service_tier": st.sampled_from(["auto", "default", "flex"]),
}


@settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(fields=st.fixed_dictionaries({}, optional=FIELDS), streamed=st.booleans())
def test_any_mixture_of_fields(strict: Client, fields: dict[str, Any], streamed: bool) -> None:
    body = {"model": "smollm2", "messages": HELLO, "max_tokens": 4} | fields
    if "logprobs" in fields:
        body["top_logprobs"] = 2
    tell = strict.stream if streamed else strict.whole
    tell("chat/completions", body, **NO_STORE)
