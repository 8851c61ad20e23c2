"""Embeddings by the bundled engine."""

import base64
import json
import math

import pytest

from engine.client import EngineClient
from gateway.errors import InvalidRequestError
from gateway.upstream.engine_backend import EngineBackend
from gateway.wire.embeddings import parse_embedding
from tests.conformance.openai_schemas import conforms
from tests.gateway.engine_requests import outbound

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_embeddings(backend: EngineBackend, client: EngineClient, encoding: str) -> None:
    texts = ["a cat", "a kitten", "stocks fell"]
    body = {"model": "m", "input": texts, "encoding_format": encoding}
    reply = await backend.send(outbound(parse_embedding(json.dumps(body).encode())))
    answer = json.loads(reply.body or b"null")
    vectors = [item["embedding"] for item in answer["data"]]
    if encoding == "float":
        conforms(answer, "CreateEmbeddingResponse")
        assert all(len(vector) == 576 for vector in vectors)
        assert all(math.isclose(math.hypot(*vector), 1, rel_tol=1e-3) for vector in vectors)
    else:
        assert all(len(base64.b64decode(vector)) == 4 * 576 for vector in vectors)
    assert answer["usage"]["prompt_tokens"] == sum(len(client.encode(text)) for text in texts)


async def test_embeddings_of_another_size_are_refused(backend: EngineBackend) -> None:
    with pytest.raises(InvalidRequestError, match="576") as caught:
        await backend.send(outbound(parse_embedding(b'{"model":"m","input":"x","dimensions":5}')))
    assert caught.value.param == "dimensions"
    with pytest.raises(InvalidRequestError) as caught:
        await backend.send(outbound(parse_embedding(b'{"model":"m","input":[[1,99999999]]}')))
    assert caught.value.param == "input"
