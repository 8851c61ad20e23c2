"""The bundled embedder as a backend: /v1/embeddings with no network between. Imports no torch."""

import asyncio

import numpy as np

from gateway.errors import ContextLengthExceeded, InvalidRequestError
from gateway.upstream.errors import UpstreamFailure
from gateway.upstream.types import Outbound, Reply
from gateway.wire.inference import Inference
from gateway.wire.responses import embeddings_list
from semcache.embedder import Embedder
from semcache.errors import EmbedderError

MANY_CHARACTERS = 8_192  # above it, tokens are counted in a thread: it would hold up every stream


class EmbedderBackend:
    """Implements `gateway.upstream.types.Backend` for embeddings. `embedder` has started; who started it closes it."""

    def __init__(self, name: str, embedder: Embedder) -> None:
        self.name = name
        self._embedder = embedder

    async def send(self, outbound: Outbound) -> Reply:
        """Raises ApiError for what this model can't embed, UpstreamFailure when it fails."""
        inference = outbound.inference
        try:
            texts = self._texts(inference)
            num_tokens = await self._num_tokens(texts)
            vectors = await self._embedder.embed(texts)
        except EmbedderError as error:
            raise UpstreamFailure(str(error)) from error
        rows = [row.tobytes() for row in np.ascontiguousarray(vectors, dtype="<f4")]
        body = embeddings_list(outbound.upstream_model, rows, num_tokens, inference.encoding_format)
        return Reply(200, body=body)

    async def aclose(self) -> None:
        """Nothing of its own to free."""

    def _texts(self, inference: Inference) -> list[str]:
        if inference.endpoint != "embeddings":
            raise InvalidRequestError("This model makes embeddings only.", param="model")
        dimension = self._embedder.dimension
        if inference.dimensions not in (None, dimension):
            message = f"This model's embeddings have {dimension} dimensions and can't be shortened."
            raise InvalidRequestError(message, param="dimensions")
        texts = [prompt for prompt in inference.prompts if isinstance(prompt, str)]
        if len(texts) < len(inference.prompts):
            message = "This model takes text as input, not arrays of tokens: it has a tokenizer of its own."
            raise InvalidRequestError(message, param="input")
        return texts

    async def _num_tokens(self, texts: list[str]) -> int:
        if sum(map(len, texts)) > MANY_CHARACTERS:
            return await asyncio.to_thread(self._count, texts)
        return self._count(texts)

    def _count(self, texts: list[str]) -> int:
        """Tokens of all texts. What the model could not read to its end is refused, not silently cut off."""
        embedder = self._embedder
        for index, text in enumerate(texts):
            if not embedder.fits(text):
                where = "input" if len(texts) == 1 else f"input[{index}]"
                raise ContextLengthExceeded(
                    f"This model's maximum context length is {embedder.max_tokens} tokens. "
                    f"However, {where} resulted in more. Please reduce its length.",
                    param=where,
                )
        return embedder.count_tokens(texts)
