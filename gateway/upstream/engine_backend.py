"""The bundled engine as a backend: OpenAI's requests in, OpenAI's JSON out, no network between. Imports no torch."""

import asyncio
import struct
from collections.abc import AsyncIterator

from engine.client import EngineClient
from engine.errors import EngineError, EngineOverloaded, InvalidRequest
from engine.types import Delta
from gateway.errors import ApiError, InvalidRequestError, OverloadedError
from gateway.upstream.engine_answer import EngineAnswer
from gateway.upstream.engine_request import Order, make_order, translate
from gateway.upstream.errors import UpstreamFailure
from gateway.upstream.sequences import Sequences
from gateway.upstream.types import Outbound, Reply
from gateway.wire.body import invalid
from gateway.wire.inference import Inference
from gateway.wire.responses import embeddings_list
from gateway.wire.sse import DONE

MAX_AT_ONCE = 256
RETRY_AFTER_S = 1  # a full queue drains quickly, or not at all


class EngineBackend:
    """Implements `Backend`, `CountsTokens` and `Tokenizes` of `gateway.upstream.types`. Owns its started `client`."""

    def __init__(self, name: str, client: EngineClient) -> None:
        self.name = name
        self._client = client

    async def send(self, outbound: Outbound) -> Reply:
        """A stream's reply is returned with its first token. Raises ApiError, UpstreamFailure."""
        order = await make_order(self._client, outbound)
        inference = outbound.inference
        answers = [self._client.generate(request, outbound.dispatch.add_compute) for request in order.requests]
        sequences = Sequences(answers, self._at_once(inference))
        running = _Running(sequences, inference, order)
        try:
            if inference.endpoint == "embeddings":
                return Reply(200, body=await _embeddings(running, outbound))
            first = await running.next()
            answer = EngineAnswer(self._client, outbound, order)  # not before: the prompts' tokens may not exist
            if inference.stream:
                return Reply(200, events=_events(running, answer, first), close=running.aclose)
            while first:
                for place, delta in first:
                    answer.take(place, delta)
                first = await running.next()
            return Reply(200, body=answer.whole())
        except BaseException:
            await running.aclose()
            raise

    async def count_tokens(self, outbound: Outbound) -> int:
        order = await make_order(self._client, outbound)
        return sum(len(request.prompt_token_ids) for request in order.requests)

    @property
    def max_model_len(self) -> int:
        return self._client.info.context_length

    async def tokenize(self, outbound: Outbound, *, special: bool) -> list[int]:
        inference = outbound.inference
        (prompt,) = inference.prompts or ("",)
        if not special and inference.endpoint == "completions" and isinstance(prompt, str):
            return await asyncio.to_thread(self._client.encode, prompt, add_bos=False)
        order = await make_order(self._client, outbound)
        return order.requests[0].prompt_token_ids

    async def detokenize(self, token_ids: list[int]) -> str:
        size = self._client.info.vocab_size
        if any(token >= size for token in token_ids):
            raise invalid("tokens", f"the model has tokens from 0 to {size - 1}")
        return await asyncio.to_thread(self._client.decode, token_ids)

    def token_text(self, token_id: int) -> str:
        name = self._client.token_name(token_id)
        return name or self._client.bytes_after(None, token_id).decode("utf-8", "replace")

    async def aclose(self) -> None:
        await self._client.aclose()

    def _at_once(self, inference: Inference) -> int:
        """How many prompts of one request run side by side.

        The others wait outside the queue that everybody shares: so many find room even in a small one, and leave some.
        """
        places = self._client.max_choices // 2
        return max(1, min(MAX_AT_ONCE, places // max(inference.n, inference.best_of or 1)))


class _Running:
    """The sequences of one answer, with the engine's errors in the gateway's terms."""

    def __init__(self, sequences: Sequences, inference: Inference, order: Order) -> None:
        self._sequences = sequences
        self._inference = inference
        self._grammar_param = order.grammar_param
        self.aclose = sequences.aclose

    async def next(self) -> list[tuple[int, Delta]]:
        """The next deltas, each with its prompt's place; none at the end."""
        try:
            batch = await self._sequences.next()
        except EngineError as error:
            raise self._translated(error) from error
        if any(delta.finish_reason == "abort" for _, delta in batch):
            raise UpstreamFailure("the engine gave up this answer")
        return batch

    def _translated(self, error: EngineError) -> ApiError | UpstreamFailure:
        if isinstance(error, InvalidRequest):
            return translate(error, self._inference, self._grammar_param)
        if isinstance(error, EngineOverloaded):
            message = "The bundled engine is overloaded; please retry later."
            return OverloadedError(message, headers={"retry-after": str(RETRY_AFTER_S)})
        return UpstreamFailure(str(error))


async def _events(
    running: _Running, answer: EngineAnswer, batch: list[tuple[int, Delta]]
) -> AsyncIterator[list[bytes]]:
    """Lists of payloads, those of one step together; usage and [DONE] at the end."""
    payloads = answer.opening()
    while batch:
        for place, delta in batch:
            payloads += answer.chunks(place, delta)
        yield payloads
        payloads = []
        batch = await running.next()
    # The books want usage whoever asked; the relay takes it out again for a client that did not.
    yield [answer.usage_chunk(), DONE]


async def _embeddings(running: _Running, outbound: Outbound) -> bytes:
    inference = outbound.inference
    last: dict[int, Delta] = {}
    while batch := await running.next():
        last.update(batch)
    vectors = [last[place].embedding or () for place in range(len(inference.prompts))]
    if inference.dimensions not in (None, len(vectors[0])):
        message = f"This model's embeddings have {len(vectors[0])} dimensions and can't be shortened."
        raise InvalidRequestError(message, param="dimensions")
    rows = [struct.pack(f"<{len(vector)}f", *vector) for vector in vectors]
    num_tokens = sum(delta.num_prompt_tokens for delta in last.values())
    return embeddings_list(outbound.upstream_model, rows, num_tokens, inference.encoding_format)
