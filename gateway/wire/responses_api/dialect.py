"""The Responses API in front of the pipeline: a dialect made for one request, whose conversation is already known."""

from collections.abc import Sequence

from gateway.wire.inference import Inference
from gateway.wire.responses_api.chat_request import chat_inference
from gateway.wire.responses_api.input_items import Item
from gateway.wire.responses_api.request import Creation
from gateway.wire.responses_api.voice import ResponsesVoice


class ResponsesDialect:
    """Implements `gateway.wire.dialect.Dialect` for the one request. Raises InvalidRequestError when made."""

    def __init__(self, creation: Creation, conversation: Sequence[Item]) -> None:
        self._inference = chat_inference(creation, conversation)
        self.answer = ResponsesVoice(creation)

    def parse(self, raw: bytes) -> Inference:
        return self._inference

    def voice(self, inference: Inference, request_id: str) -> ResponsesVoice:
        return self.answer
