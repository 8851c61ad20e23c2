"""What the bundled engine and embedder say is what OpenAI's schemas say."""

import base64
import json
import struct

from gateway.wire.logprobs import TokenLogprob, chat_logprobs
from gateway.wire.responses import (
    Call,
    Choice,
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


def test_a_chat_completion_with_calls_and_logprobs() -> None:
    call = Call("call_1", "f", '{"a": 1}')
    logprobs = chat_logprobs([TokenLogprob(b"x", -0.5, top=(TokenLogprob(b"x", -0.5), TokenLogprob(b"y", -9e99)))])
    choices = [Choice("", "tool_calls", (call, call)), Choice("x", "stop", logprobs=logprobs)]
    answer = conforms(chat_completion("chatcmpl-1", 5, "m", choices, USAGE), "CreateChatCompletionResponse")
    message = answer["choices"][0]["message"]
    assert message["content"] is None
    function = {"name": "f", "arguments": '{"a": 1}'}
    assert message["tool_calls"] == [{"id": "call_1", "type": "function", "function": function}] * 2
    assert answer["choices"][1]["logprobs"]["content"][0]["top_logprobs"][1]["logprob"] == -9999.0


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
