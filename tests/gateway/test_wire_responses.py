"""What the bundled engine and embedder say is what OpenAI's schemas say."""

import base64
import json
import struct

import pytest

from gateway.wire.responses import (
    ChatChunks,
    Choice,
    TextChunks,
    chat_completion,
    embeddings_list,
    model_object,
    models_list,
    text_completion,
)
from gateway.wire.usage import Usage
from tests.conformance.openai_schemas import conforms

USAGE = Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1)
TEXT = 'He said: "日本語 🙂\n\\u0000"\x00\x7f'


def test_a_chat_completion() -> None:
    body = chat_completion("chatcmpl-1", 5, "m", [Choice(TEXT, "stop"), Choice("", "length")], USAGE)
    answer = conforms(body, "CreateChatCompletionResponse")
    assert [(c["index"], c["message"]["content"], c["finish_reason"]) for c in answer["choices"]] == [
        (0, TEXT, "stop"),
        (1, "", "length"),
    ]
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 1
    assert answer["usage"]["total_tokens"] == 5


def test_a_text_completion() -> None:
    answer = conforms(text_completion("cmpl-1", 5, "m", [Choice(TEXT, "stop")], USAGE), "CreateCompletionResponse")
    assert answer["choices"][0]["text"] == TEXT


@pytest.mark.parametrize("null_usage", [True, False])
def test_chat_chunks(null_usage: bool) -> None:
    chunks = ChatChunks("chatcmpl-1", 5, 'm"m', null_usage=null_usage)
    payloads = [*chunks.opening(3), chunks.text(3, TEXT), chunks.finish(3, "stop")]
    decoded = [conforms(payload, "CreateChatCompletionStreamResponse") for payload in payloads]
    assert [c["choices"][0]["index"] for c in decoded] == [3, 3, 3]
    assert [c["choices"][0]["delta"] for c in decoded] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": TEXT},
        {},
    ]
    assert [c["choices"][0]["finish_reason"] for c in decoded] == [None, None, "stop"]
    assert {c["model"] for c in decoded} == {'m"m'}
    assert all(("usage" in c) == null_usage and c.get("usage") is None for c in decoded)
    last = conforms(chunks.usage(USAGE), "CreateChatCompletionStreamResponse")
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 2)


def test_text_chunks() -> None:
    chunks = TextChunks("cmpl-1", 5, "m", null_usage=False)
    assert chunks.opening(0) == []
    said, end, usage = (json.loads(c) for c in (chunks.text(1, TEXT), chunks.finish(1, "length"), chunks.usage(USAGE)))
    assert said["choices"] == [{"index": 1, "text": TEXT, "logprobs": None, "finish_reason": None}]
    # OpenAI has no schema of its own for text chunks: the last one is like a whole answer.
    conforms(end, "CreateCompletionResponse")
    assert end["choices"][0]["finish_reason"] == "length"
    assert conforms(usage, "CreateCompletionResponse")["choices"] == []


ROWS = [struct.pack("<3f", 0.25, -1.5, 3e-5), struct.pack("<3f", 0, 1, 2)]


def test_embeddings_as_numbers() -> None:
    answer = conforms(embeddings_list("m", ROWS, 7), "CreateEmbeddingResponse")
    assert [item["index"] for item in answer["data"]] == [0, 1]
    assert answer["data"][0]["embedding"] == list(struct.unpack("<3f", ROWS[0]))
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 7}


def test_embeddings_as_base64() -> None:
    answer = json.loads(embeddings_list("m", ROWS, 7, "base64"))
    assert [base64.b64decode(item["embedding"]) for item in answer["data"]] == ROWS


def test_models() -> None:
    listed = conforms(models_list([("auto", "tollhouse"), ("m", "local")]), "ListModelsResponse")
    assert [(model["id"], model["owned_by"]) for model in listed["data"]] == [("auto", "tollhouse"), ("m", "local")]
    assert conforms(model_object("m", "local"), "Model") == listed["data"][1]
