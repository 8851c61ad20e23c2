"""Where tokens stand in a text that a SentencePiece vocabulary begins with a space of its own."""

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from engine.client import EngineClient
from engine.types import EngineOptions
from gateway.upstream.engine_backend import EngineBackend
from gateway.wire.assemble import assemble
from tests.engine.model_files import VOCABULARY, random_weights, write_gguf
from tests.gateway.engine_requests import answered, chat, completion

pytestmark = pytest.mark.anyio

NORMAL, UNKNOWN, CONTROL = 1, 2, 3
CONTROLS = ["<unk>", "<s>", "</s>", "<|user|>"]
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
WORDS = ["\u2581", *LETTERS, *(f"\u2581{letter}" for letter in LETTERS)]
TOKENS = CONTROLS + WORDS + [f"x{i}" for i in range(len(VOCABULARY) - len(CONTROLS) - len(WORDS))]


@pytest.fixture(scope="module")
async def backend(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[EngineBackend]:
    file = write_gguf(
        tmp_path_factory.mktemp("sentencepiece") / "model.gguf", random_weights(),
        tokenizer__ggml__model="llama", tokenizer__ggml__tokens=TOKENS,
        tokenizer__ggml__scores=[-float(i) for i in range(len(TOKENS))],
        tokenizer__ggml__token_type=[UNKNOWN, *[CONTROL] * 3, *[NORMAL] * (len(TOKENS) - 4)],
        tokenizer__ggml__bos_token_id=1, tokenizer__ggml__eos_token_id=2,
        tokenizer__chat_template="{% for message in messages %}<|user|>{{ message.content }}{% endfor %}",
    )  # fmt: skip
    client = EngineClient(EngineOptions(model=str(file), kv_cache_mb=1, max_wait_ms=0))
    await client.start()
    yield EngineBackend("local", client)
    await client.aclose()


async def echoed(backend: EngineBackend, prompt: Any, *, stream: bool = False) -> Any:
    """The one choice; its null for what nobody knows of the first token is as at OpenAI, whatever its schema says."""
    fields = {"echo": True, "logprobs": 2, "max_tokens": 4, "ignore_eos": True, "stream": stream}
    reply = await backend.send(completion(prompt, **fields))
    if reply.events is None:
        return json.loads(reply.body or b"null")["choices"][0]
    payloads = [payload for payloads in [each async for each in reply.events] for payload in payloads]
    return json.loads(assemble(payloads) or b"null")["choices"][0]


def check_offsets(choice: Any) -> None:
    """Each token's text stands where it is said to stand, and nothing stands between two of them."""
    logprobs, text = choice["logprobs"], choice["text"]
    for token, (begin, end) in zip(logprobs["tokens"], pairwise([*logprobs["text_offset"], len(text)]), strict=True):
        assert text[begin:end] == ("" if token in CONTROLS and begin == end else token)


@pytest.mark.parametrize("prompt", ["a bc d", " a", "a<|user|>b c", "<|user|>a", "<s>a", "<s>", ""])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_echoed_prompt_and_its_answer_are_where_they_are_said_to_be(
    backend: EngineBackend, prompt: str, stream: bool
) -> None:
    choice = await echoed(backend, prompt, stream=stream)
    assert choice["text"].startswith(prompt)
    check_offsets(choice)


@pytest.mark.parametrize("prompt", [[1, 10, 20], [10, 3, 40, 20], [60]])
async def test_a_prompt_of_tokens_does_so_too(backend: EngineBackend, prompt: list[int]) -> None:
    check_offsets(await echoed(backend, prompt))


async def test_what_tokens_add_is_the_text(backend: EngineBackend) -> None:
    for seed in range(8):
        fields = {"logprobs": True, "max_tokens": 6, "ignore_eos": True, "temperature": 1, "seed": seed}
        answer = await answered(await backend.send(chat(**fields)), "CreateChatCompletionResponse")
        (choice,) = answer["choices"]
        content = choice["logprobs"]["content"]
        assert b"".join(bytes(entry["bytes"]) for entry in content).decode() == choice["message"]["content"]
