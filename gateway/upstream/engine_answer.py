"""The bundled engine's deltas as OpenAI's answers: whole, or chunk by chunk. Runs nothing."""

import time
from typing import Any

from engine.client import EngineClient
from engine.tools.types import CallBegins, Piece, Text
from engine.types import Delta
from gateway.upstream.engine_choice import EngineChoice
from gateway.upstream.engine_request import Order, num_logprobs, prompt_text
from gateway.upstream.types import Outbound
from gateway.wire.chunks import ChatChunks, TextChunks
from gateway.wire.logprobs import TextLogprobs, TokenLogprob
from gateway.wire.responses import chat_completion, text_completion
from gateway.wire.usage import Usage


class EngineAnswer:
    """One answer in the making, by `take` for a whole one or by `chunks` for a stream.

    `place` is a prompt's; the choices are numbered prompt by prompt.
    """

    def __init__(self, client: EngineClient, outbound: Outbound, order: Order) -> None:
        inference = outbound.inference
        self._client = client
        self._inference = inference
        self._order = order
        self._is_chat = inference.endpoint == "chat.completions"
        self._id = ("chatcmpl-" if self._is_chat else "cmpl-") + outbound.request_id
        self._created = int(time.time())
        self._model = outbound.upstream_model
        self._with_logprobs = num_logprobs(inference) is not None
        self._choices = [self._choice(index // inference.n) for index in range(len(order.requests) * inference.n)]
        kind = ChatChunks if self._is_chat else TextChunks
        self._chunks = kind(self._id, self._created, self._model, null_usage=inference.include_usage)

    def take(self, place: int, delta: Delta) -> None:
        choice = self._choices[place * self._inference.n + delta.index]
        tokens = self._tokens(choice, delta)
        choice.keep(choice.pieces(delta), tokens)

    def whole(self) -> bytes:
        choices = [choice.whole(with_logprobs=self._with_logprobs) for choice in self._choices]
        build = chat_completion if self._is_chat else text_completion
        return build(self._id, self._created, self._model, choices, self._usage())

    def opening(self) -> list[bytes]:
        return [payload for index in range(len(self._choices)) for payload in self._chunks.opening(index)]

    def chunks(self, place: int, delta: Delta) -> list[bytes]:
        index = place * self._inference.n + delta.index
        choice = self._choices[index]
        tokens = self._tokens(choice, delta)
        logprobs = choice.told(tokens) if tokens else None
        payloads = []
        for piece in choice.pieces(delta):
            payloads.append(self._chunk(index, piece, logprobs))
            logprobs = None  # those of the whole delta come with its first chunk
        if logprobs is not None:
            payloads.append(self._chunks.text(index, "", logprobs))
        if delta.finish_reason is not None:
            payloads.append(self._chunks.finish(index, choice.finish_reason))
        return payloads

    def usage_chunk(self) -> bytes:
        return self._chunks.usage(self._usage())

    def _choice(self, place: int) -> EngineChoice:
        tools = self._order.toolbox
        return EngineChoice(
            self._client,
            self._order.requests[place].prompt_token_ids,
            echo=prompt_text(self._client, self._inference.prompts[place]) if self._inference.echo else "",
            parser=self._client.tool_format.parser(tools.tools, tools.most) if tools is not None else None,
            text_logprobs=None if self._is_chat else TextLogprobs(),
        )

    def _tokens(self, choice: EngineChoice, delta: Delta) -> list[TokenLogprob]:
        """What is told of a delta's tokens; with a choice's first delta comes what is told of its prompt's."""
        if not self._with_logprobs:
            return []
        if not self._inference.echo or choice.has_begun:
            return choice.tokens(delta)
        return choice.prompt_tokens(delta.prompt_logprobs) + choice.tokens(delta)

    def _usage(self) -> Usage:
        """A prompt counts once, however many choices it has; what `best_of` made and did not give counts, too."""
        first_choices = self._choices[:: self._inference.n]
        return Usage(
            prompt_tokens=sum(choice.last.num_prompt_tokens for choice in first_choices),
            completion_tokens=sum(
                choice.last.num_generated_tokens + choice.last.num_discarded_tokens for choice in self._choices
            ),
            cached_tokens=sum(choice.last.num_cached_tokens for choice in first_choices),
        )

    def _chunk(self, index: int, piece: Piece, logprobs: dict[str, Any] | None) -> bytes:
        if isinstance(piece, Text):
            return self._chunks.text(index, piece.text, logprobs)
        assert isinstance(self._chunks, ChatChunks), "only chats have calls"
        if isinstance(piece, CallBegins):
            return self._chunks.call(index, piece.index, piece.id, piece.name, logprobs)
        return self._chunks.arguments(index, piece.index, piece.text, logprobs)
