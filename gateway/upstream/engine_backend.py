"""The bundled engine as a backend: OpenAI's requests in, OpenAI's JSON out, no network between. Imports no torch."""

import time
from collections.abc import AsyncIterator

from engine.client import EngineClient
from engine.errors import EngineError, EngineOverloaded, InvalidRequest
from engine.types import Delta
from gateway.errors import ApiError, OverloadedError
from gateway.upstream.engine_request import generation_requests, prompt_text, translate
from gateway.upstream.errors import UpstreamFailure
from gateway.upstream.sequences import Sequences
from gateway.upstream.types import Outbound, Reply
from gateway.wire.inference import Inference
from gateway.wire.responses import ChatChunks, Choice, Chunks, TextChunks, chat_completion, text_completion
from gateway.wire.sse import DONE
from gateway.wire.usage import Usage

RETRY_AFTER_S = 1  # a full queue drains quickly, or not at all


class EngineBackend:
    """Implements `gateway.upstream.types.Backend` for chat and text completions. Owns `client`, which has started."""

    def __init__(self, name: str, client: EngineClient) -> None:
        self.name = name
        self._client = client

    async def send(self, outbound: Outbound) -> Reply:
        """A stream's reply is returned with its first token. Raises ApiError, UpstreamFailure."""
        requests = await generation_requests(self._client, outbound)
        answer = _Answer(self._client, outbound)
        sequences = Sequences([self._client.generate(request) for request in requests])
        try:
            first = await _next(sequences, outbound.inference)
            if outbound.inference.stream:
                return Reply(200, events=answer.events(sequences, first), close=sequences.aclose)
            while first:
                answer.add(first)
                first = await _next(sequences, outbound.inference)
            return Reply(200, body=answer.whole())
        except BaseException:
            await sequences.aclose()
            raise

    async def aclose(self) -> None:
        await self._client.aclose()


async def _next(sequences: Sequences, inference: Inference) -> list[tuple[int, Delta]]:
    """The next deltas, with the engine's errors in the gateway's terms."""
    try:
        batch = await sequences.next()
    except EngineError as error:
        raise _translated(error, inference) from error
    if any(delta.finish_reason == "abort" for _, delta in batch):
        raise UpstreamFailure("the engine gave up this answer")
    return batch


def _translated(error: EngineError, inference: Inference) -> ApiError | UpstreamFailure:
    if isinstance(error, InvalidRequest):
        return translate(error, inference)
    if isinstance(error, EngineOverloaded):
        message = "The bundled engine is overloaded; please retry later."
        return OverloadedError(message, headers={"retry-after": str(RETRY_AFTER_S)})
    return UpstreamFailure(str(error))


class _Answer:
    """One answer in the making: what each choice has said so far, and what it used."""

    def __init__(self, client: EngineClient, outbound: Outbound) -> None:
        inference = outbound.inference
        self._inference = inference
        self._is_chat = inference.endpoint == "chat.completions"
        self._id = ("chatcmpl-" if self._is_chat else "cmpl-") + outbound.request_id
        self._created = int(time.time())
        self._model = outbound.upstream_model
        self._client = client
        self._last: dict[int, Delta] = {}  # of each choice
        self._texts: list[list[str]] = [[] for _ in range(inference.num_choices)]

    def add(self, batch: list[tuple[int, Delta]]) -> None:
        for index, delta in batch:
            self._texts[index].append(delta.text)
            self._last[index] = delta

    def whole(self) -> bytes:
        choices = [
            Choice(self._echo(index) + "".join(texts), str(self._last[index].finish_reason))
            for index, texts in enumerate(self._texts)
        ]
        build = chat_completion if self._is_chat else text_completion
        return build(self._id, self._created, self._model, choices, self._usage())

    async def events(self, sequences: Sequences, batch: list[tuple[int, Delta]]) -> AsyncIterator[list[bytes]]:
        """Lists of payloads, those of one step together; usage and [DONE] at the end."""
        kind = ChatChunks if self._is_chat else TextChunks
        chunks = kind(self._id, self._created, self._model, null_usage=self._inference.include_usage)
        payloads = self._opening(chunks)
        while batch:
            for index, delta in batch:
                self._last[index] = delta
                if delta.text:
                    payloads.append(chunks.text(index, delta.text))
                if delta.finish_reason is not None:
                    payloads.append(chunks.finish(index, delta.finish_reason))
            yield payloads
            payloads = []
            batch = await _next(sequences, self._inference)
        # The books want usage whoever asked; the relay takes it out again for a client that did not.
        yield [chunks.usage(self._usage()), DONE]

    def _opening(self, chunks: Chunks) -> list[bytes]:
        payloads: list[bytes] = []
        for index in range(len(self._texts)):
            payloads += chunks.opening(index)
            if echo := self._echo(index):
                payloads.append(chunks.text(index, echo))
        return payloads

    def _echo(self, index: int) -> str:
        """The prompt, if it is wanted back. Asked for only once the engine has accepted it: its tokens exist."""
        inference = self._inference
        return prompt_text(self._client, inference.prompts[index // inference.n]) if inference.echo else ""

    def _usage(self) -> Usage:
        """A prompt counts once, however many choices it has."""
        first_choices = [self._last[index] for index in range(0, len(self._texts), self._inference.n)]
        return Usage(
            prompt_tokens=sum(delta.num_prompt_tokens for delta in first_choices),
            completion_tokens=sum(delta.num_generated_tokens for delta in self._last.values()),
            cached_tokens=sum(delta.num_cached_tokens for delta in first_choices),
        )
