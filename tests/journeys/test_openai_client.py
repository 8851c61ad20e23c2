"""The official client against the bundled engine: nothing changed but base_url and api_key."""

import openai
import pytest

from tests.conformance.openai_schemas import conforms
from tests.support.server import Gateway

HELLO = [{"role": "user", "content": "Say hello in one short sentence."}]


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="smollm2", messages=HELLO, max_tokens=24, temperature=0)
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 10
    assert 0 < answer.usage.completion_tokens <= 24


def test_chat_streamed_says_the_same(client: openai.OpenAI) -> None:
    wanted = {"model": "smollm2", "messages": [{"role": "user", "content": "Name three colours."}], "max_tokens": 24}
    no_cache = {"cache-control": "no-store"}
    whole = client.chat.completions.create(**wanted, temperature=0, extra_headers=no_cache)
    options = {"include_usage": True}
    stream = client.chat.completions.create(
        **wanted, temperature=0, stream=True, stream_options=options, extra_headers=no_cache
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert sum(1 for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason) == 1
    assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == [whole.usage.completion_tokens]
    assert not chunks[-1].choices


def test_usage_comes_only_when_asked(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model="smollm2", messages=HELLO, max_tokens=4, stream=True)
    assert all(chunk.choices and chunk.usage is None for chunk in stream)


def test_a_seed_reproduces_and_another_differs(client: openai.OpenAI) -> None:
    def ask(seed: int) -> str | None:
        answer = client.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": "Tell me a story."}],
            max_tokens=24,
            temperature=1.0,
            seed=seed,
            extra_headers={"cache-control": "no-store"},
        )
        return answer.choices[0].message.content

    assert ask(1) == ask(1)
    assert ask(1) != ask(2)


def test_stop_strings_and_several_choices(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smollm2", messages=HELLO, max_tokens=16, n=2, stop=["."], extra_headers={"cache-control": "no-store"}
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all("." not in (choice.message.content or "") for choice in answer.choices)


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="smollm2", prompt="The capital of France is", max_tokens=8, temperature=0)
    assert "Paris" in answer.choices[0].text
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 8


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_embeddings(client: openai.OpenAI, encoding: str) -> None:
    texts = ["a cat", "a kitten", "the stock market"]
    answer = client.embeddings.create(model="minilm", input=texts, encoding_format=encoding)
    raw = client.embeddings.create(model="minilm", input=texts)  # the client's own default: base64 on the wire
    assert [len(item.embedding) for item in raw.data] == [384] * 3
    cat, kitten, market = (item.embedding for item in raw.data)
    near = sum(a * b for a, b in zip(cat, kitten, strict=True))
    far = sum(a * b for a, b in zip(cat, market, strict=True))
    assert near > 0.6 > far
    assert answer.usage.prompt_tokens == raw.usage.prompt_tokens > 6


def test_models(client: openai.OpenAI, gateway: Gateway, key: str) -> None:
    names = [model.id for model in client.models.list()]
    assert names[:2] == ["auto", "smollm2"]
    assert "big" not in names  # its provider has no key
    assert client.models.retrieve("smollm2").owned_by == "local"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nothing")
    conforms(gateway.get("/v1/models", key)[2], "ListModelsResponse")


def test_what_we_make_is_what_openai_would_send(gateway: Gateway, key: str) -> None:
    chat = {"model": "smollm2", "messages": HELLO, "max_tokens": 5}
    conforms(gateway.post("/v1/chat/completions", chat, key)[2], "CreateChatCompletionResponse")
    text = {"model": "smollm2", "prompt": "Once", "max_tokens": 5}
    conforms(gateway.post("/v1/completions", text, key)[2], "CreateCompletionResponse")
    _, _, stream = gateway.post("/v1/chat/completions", chat | {"stream": True}, key)
    events = [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: ")]
    assert events[-1] == b"[DONE]"
    for event in events[:-1]:
        conforms(event, "CreateChatCompletionStreamResponse")
