"""What a model can't do is refused by name, before anything is spent; what it can do is seen on the wire."""

import json
from typing import Any

import openai
import pytest

from tests.faults.good_behaviour import HELLO, THOUGHT
from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.server import Gateway

NO_STORE = {"cache-control": "no-store"}
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)
PARTS: dict[str, Any] = {
    "images": {"type": "image_url", "image_url": {"url": PIXEL}},
    "audio": {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
    "files": {"type": "file", "file": {"file_id": "f"}},
}


def with_part(capability: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, PARTS[capability]]}]


@pytest.mark.parametrize("capability", PARTS)
@pytest.mark.parametrize(("model", "param"), [("smollm2", "messages"), ("auto", "model")])
def test_what_nobody_here_can_read(client: openai.OpenAI, model: str, param: str, capability: str) -> None:
    with pytest.raises(openai.BadRequestError, match=capability) as refused:
        client.chat.completions.create(model=model, messages=with_part(capability))
    assert refused.value.param == param


@pytest.mark.parametrize("capability", PARTS)
def test_parts_pass_on_to_who_may_read_them(
    client: openai.OpenAI, upstream: MisbehavingUpstream, capability: str
) -> None:
    messages = with_part(capability)
    client.chat.completions.create(model="probe/good", messages=messages, extra_headers=NO_STORE)
    assert upstream.of("good")[-1].json["messages"] == messages


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "custom", "custom": {"name": "sh"}}]}, "tools"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": [{"type": "code_interpreter", "container": {}}]}, "tools"),
        ({"functions": [{"name": "f"}], "function_call": "auto"}, "functions"),
        ({"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}, "messages"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"extra_body": {"moderation": {"model": "m"}}}, "moderation"),
    ],
)
def test_what_only_some_providers_do(
    client: openai.OpenAI, upstream: MisbehavingUpstream, fields: dict[str, Any], param: str
) -> None:
    hello: Any = [{"role": "user", "content": "hello"}]
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="smollm2", messages=hello, max_tokens=4, **fields)
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", param)
    client.chat.completions.create(model="probe/ok", messages=hello, extra_headers=NO_STORE, **fields)
    (name, sent), *_ = (fields.get("extra_body") or fields).items()
    assert upstream.of("ok")[-1].json[name] == sent


def test_thoughts_pass_and_are_told_again(gateway: Gateway, key: str) -> None:
    """Whole and in pieces, fresh and from the cache."""
    body = {"model": "probe/good", "messages": [{"role": "user", "content": "Think aloud."}], "temperature": 0}
    for outcome in ("miss", "hit-exact"):
        for streamed in (False, True):
            place = {"x_tollhouse_namespace": f"thoughts, {streamed}"}
            _, headers, raw = gateway.post("/v1/chat/completions", body | {"stream": streamed}, key, **place)
            assert headers["x-tollhouse-cache"] == outcome
            assert (said(raw, "reasoning_content"), said(raw, "content")) == (THOUGHT, HELLO)


def said(raw: bytes, name: str) -> str:
    """A text of the first choice's message, whichever way it was told."""
    if not raw.startswith(b"data:"):
        return str(json.loads(raw)["choices"][0]["message"][name])
    events = [line[6:] for line in raw.splitlines() if line.startswith(b"data: ")]
    return "".join(json.loads(event)["choices"][0]["delta"].get(name) or "" for event in events[:-1])


def test_a_bias_decides(client: openai.OpenAI) -> None:
    def ask(**fields: Any) -> Any:
        hello: Any = [{"role": "user", "content": "hello"}]
        wanted = {"max_tokens": 3, "temperature": 0, "logprobs": True, "top_logprobs": 2}
        return client.chat.completions.create(
            model="smollm2", messages=hello, extra_headers=NO_STORE, **(wanted | fields)
        )

    plain, biased = ask(), ask(logit_bias={"45": 100})
    assert biased.choices[0].message.content != plain.choices[0].message.content
    assert len({entry.token for entry in biased.choices[0].logprobs.content}) == 1
    for entry in plain.choices[0].logprobs.content:
        assert entry.logprob <= 0
        assert bytes(entry.bytes).decode(errors="replace") == entry.token
        assert entry.top_logprobs[0].logprob >= entry.top_logprobs[1].logprob
        assert entry.token == entry.top_logprobs[0].token  # nothing is drawn at temperature 0
