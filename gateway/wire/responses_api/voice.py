"""Tells a chat's answer as a response object, whole or event by event, and keeps the object for whoever stores it."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gateway.errors import ApiError, UpstreamError
from gateway.wire.responses_api.output import Event, Output, text_in
from gateway.wire.responses_api.request import Creation
from gateway.wire.responses_api.response_object import ACTIVE, Response, ended, failed, opened, usage_object

# Where a refusal names a field of the chat request that we made, the client wrote another.
PARAMS = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "response_format.json_schema.schema": "text.format.schema",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "logprobs": "include",
}
_UNREADABLE = (msgspec.MsgspecError, AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)


class ResponsesVoice:
    """Implements `gateway.wire.dialect.Voice`. A stream has no [DONE]: its last event says how it ended."""

    def __init__(self, creation: Creation) -> None:
        self._response = opened(creation, int(time.time()))
        self._output = Output(creation.response_id, len(creation.items))
        self._num_events = 0
        self._finish_reason: str | None = None

    @property
    def response(self) -> Response:
        """As it stands at this moment."""
        return self._response | {"output": self._output.snapshot()}

    @property
    def over(self) -> bool:
        """Whether nothing will be added."""
        return self._response["status"] not in ACTIVE

    @property
    def begun(self) -> bool:
        return self._num_events > 0

    def whole(self, body: bytes) -> bytes:
        """Raises UpstreamError for what is no chat completion."""
        try:
            answer = msgspec.json.decode(body)
            choice = answer["choices"][0]
            for _ in self._output.add(choice["message"], choice.get("logprobs")):
                pass  # nobody is told of the steps
            self._note(answer, choice)
        except _UNREADABLE as error:
            raise UpstreamError("The upstream's answer can't be read.", code="protocol_error") from error
        for _ in self._finish():
            pass
        return msgspec.json.encode(self.response)

    def events(self, payloads: Iterable[bytes]) -> bytes:
        return b"".join(piece for payload in payloads for piece in self._tell(payload))

    def begin(self) -> bytes:
        """The events that come before any answer: nothing, if they have been told."""
        if self.begun:
            return b""
        told = [self._event("response.created")]
        self.start()
        return b"".join([*told, self._event("response.in_progress")])

    def start(self) -> None:
        """It waits no longer."""
        self._response["status"] = "in_progress"

    def end(self) -> bytes:
        return self.begin() + b"".join(self._finish())

    def error(self, error: ApiError) -> bytes:
        body = error.body()
        body["error"]["param"] = PARAMS.get(error.param or "", error.param)
        self._fail(error.message, error.code)
        return msgspec.json.encode(body)

    def refusal(self, body: bytes, status: int) -> bytes:
        self._fail(**_told(msgspec.json.decode(body)))
        return body

    def broken(self, error: ApiError) -> bytes:
        return self.begin() + b"".join(self._break(error.message, error.code))

    def cut(self, status: str) -> None:
        """Stopped from outside, with whatever is written so far."""
        for _ in self._output.close("incomplete"):
            pass
        self._response = self._response | {"status": status, "error": None}

    def verdict(self) -> bytes:
        """The event that says how it ended."""
        return self._event(f"response.{self._response['status']}")

    def _tell(self, payload: bytes) -> Iterator[bytes]:
        yield self.begin()
        try:
            chunk = msgspec.json.decode(payload)
            if chunk.get("error") is not None:
                yield from self._break(**_told(chunk))
                return
            choice = next(iter(chunk.get("choices") or ()), None)
            self._note(chunk, choice)
            if choice is not None and choice.get("index", 0) == 0:
                for event in self._output.add(choice.get("delta") or {}, choice.get("logprobs")):
                    yield self._frame(event)
        except _UNREADABLE as error:
            raise UpstreamError("The upstream's stream can't be read.", code="protocol_error") from error

    def _note(self, answer: dict[str, Any], choice: dict[str, Any] | None) -> None:
        """What an answer or a chunk says beside its text."""
        if isinstance(answer.get("model"), str) and answer["model"]:
            self._response["model"] = answer["model"]
        if answer.get("service_tier"):
            self._response["service_tier"] = answer["service_tier"]
        if answer.get("usage"):
            self._response["usage"] = usage_object(answer["usage"])
        if choice is not None:
            self._finish_reason = text_in(choice, "finish_reason") or self._finish_reason

    def _finish(self) -> Iterator[bytes]:
        response = ended(self._response, self._finish_reason, int(time.time()))
        for event in self._output.close(response["status"]):
            yield self._frame(event)
        self._response = response
        yield self.verdict()

    def _break(self, message: str, code: str | None) -> Iterator[bytes]:
        for event in self._output.close("incomplete"):
            yield self._frame(event)
        self._response = failed(self._response, message, code)
        yield self.verdict()

    def _fail(self, message: str, code: str | None) -> None:
        self._response = failed(self._response, message, code)

    def _event(self, kind: str) -> bytes:
        return self._frame({"type": kind, "response": self.response})

    def _frame(self, event: Event) -> bytes:
        number = self._num_events
        self._num_events += 1
        return _framed(event, number)


def error_event(error: ApiError, sequence_number: int) -> bytes:
    """For whoever can be told nothing of the response itself."""
    told = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
    return _framed(told, sequence_number)


def _framed(event: Event, sequence_number: int) -> bytes:
    event["sequence_number"] = sequence_number
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(event))


def _told(body: dict[str, Any]) -> dict[str, Any]:
    """Message and code of an error in OpenAI's shape, or in somebody's idea of it."""
    error = body["error"]
    if not isinstance(error, dict):
        return {"message": str(error), "code": None}
    return {"message": str(error.get("message") or "The upstream broke off."), "code": str(error.get("code"))}
