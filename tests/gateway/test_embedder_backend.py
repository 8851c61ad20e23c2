"""The bundled embedder speaks OpenAI's /v1/embeddings, with the real model."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.errors import ContextLengthExceeded, InvalidRequestError
from gateway.upstream.embedder_backend import EmbedderBackend
from gateway.upstream.errors import UpstreamFailure
from gateway.upstream.types import Outbound
from gateway.wire.chat import parse_chat
from gateway.wire.embeddings import parse_embedding
from semcache.embedder import Embedder
from tests.conformance.openai_schemas import conforms

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def embedder(minilm_path: Path, anyio_backend: str) -> AsyncIterator[Embedder]:
    embedder = Embedder(minilm_path)
    await embedder.start()
    yield embedder
    await embedder.aclose()


@pytest.fixture
def backend(embedder: Embedder) -> EmbedderBackend:
    return EmbedderBackend("embedder", embedder)


async def embed(backend: EmbedderBackend, text: Any, **fields: Any) -> Any:
    inference = parse_embedding(json.dumps({"model": "m", "input": text} | fields).encode())
    reply = await backend.send(Outbound(request_id="r", inference=inference, upstream_model="minilm"))
    assert reply.status == 200
    assert reply.body is not None
    return json.loads(reply.body)


async def test_texts_become_unit_vectors_in_their_order(backend: EmbedderBackend, embedder: Embedder) -> None:
    texts = ["The sea is deep.", "How deep is the ocean?", "Invoices are due in March."]
    answer = conforms(await embed(backend, texts), "CreateEmbeddingResponse")
    assert answer["model"] == "minilm"
    assert [item["index"] for item in answer["data"]] == [0, 1, 2]
    vectors = np.array([item["embedding"] for item in answer["data"]])
    assert vectors.shape == (3, embedder.dimension)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2
    assert answer["usage"] == {
        "prompt_tokens": embedder.count_tokens(texts),
        "total_tokens": embedder.count_tokens(texts),
    }


async def test_base64_is_the_same_vector(backend: EmbedderBackend) -> None:
    numbers = (await embed(backend, "The sea"))["data"][0]["embedding"]
    packed = (await embed(backend, "The sea", encoding_format="base64"))["data"][0]["embedding"]
    assert np.frombuffer(base64.b64decode(packed), "<f4").tolist() == numbers


async def test_many_texts_in_one_request(backend: EmbedderBackend) -> None:
    answer = await embed(backend, [f"text number {i}" for i in range(100)])
    assert len(answer["data"]) == 100
    alone = (await embed(backend, "text number 77"))["data"][0]["embedding"]
    assert np.dot(answer["data"][77]["embedding"], alone) > 0.999


async def test_the_models_own_dimension_may_be_named_and_no_other(backend: EmbedderBackend, embedder: Embedder) -> None:
    answer = await embed(backend, "x", dimensions=embedder.dimension)
    assert len(answer["data"][0]["embedding"]) == embedder.dimension
    with pytest.raises(InvalidRequestError, match=str(embedder.dimension)) as caught:
        await embed(backend, "x", dimensions=embedder.dimension - 1)
    assert caught.value.param == "dimensions"


@pytest.mark.parametrize("tokens", [[1, 2, 3], [[1, 2], [3]]])
async def test_tokens_are_refused(backend: EmbedderBackend, tokens: Any) -> None:
    with pytest.raises(InvalidRequestError, match="tokens") as caught:
        await embed(backend, tokens)
    assert caught.value.param == "input"


@pytest.mark.parametrize("words", [400, 2_000_000])
async def test_what_the_model_would_cut_off_is_refused(
    backend: EmbedderBackend, embedder: Embedder, words: int
) -> None:
    with pytest.raises(ContextLengthExceeded, match=str(embedder.max_tokens)) as caught:
        await embed(backend, ["short", "sea " * words])
    assert caught.value.param == "input[1]"


async def test_chat_is_refused(backend: EmbedderBackend) -> None:
    inference = parse_chat(b'{"model":"m","messages":[{"role":"user","content":"hi"}]}')
    with pytest.raises(InvalidRequestError) as caught:
        await backend.send(Outbound(request_id="r", inference=inference, upstream_model="minilm"))
    assert caught.value.param == "model"


async def test_an_embedder_that_does_not_run_is_a_failure_of_this_upstream(minilm_path: Path) -> None:
    with pytest.raises(UpstreamFailure):
        await embed(EmbedderBackend("embedder", Embedder(minilm_path)), "x")
