"""The events of an upstream's answer as lists of payloads, checked to be what a client can read."""

from collections import deque
from collections.abc import AsyncIterator
from itertools import takewhile

from gateway.upstream.answer import HttpAnswer
from gateway.upstream.errors import ProtocolFailure
from gateway.upstream.formats import OPENAI, Format
from gateway.upstream.waiting import Limit
from gateway.wire.sse import DONE, EventTooLargeError, SseParser

_BETWEEN_TWO = b"}\n{"
_NO_JSON = "an event that is no JSON"


class EventStream(AsyncIterator[list[bytes]]):
    """The data payloads of an event stream, as many as arrived together; its end (`[DONE]`) is the last if it was sent.

    The first list holds the first token, with what opened the stream before it.

    A stream without its end counts as whole if one of its last payloads told of a finish; else it is a ProtocolFailure.
    """

    def __init__(self, answer: HttpAnswer, first_token: Limit, format: Format = OPENAI, secret: bytes = b"") -> None:
        """`secret`: what no client may see, whoever says it."""
        self._answer = answer
        self._format = format
        self._secret = secret
        self._fault: ProtocolFailure | None = None
        self._parser = SseParser()
        self._limit: Limit | None = first_token  # for comments and openings too, until a token comes
        self._opening: list[bytes] = []
        self._ended = False  # no more will be read
        self._complete = False  # its end was sent
        self._last: deque[bytes] = deque(maxlen=8)

    async def __anext__(self) -> list[bytes]:
        try:
            while self._fault is None and not self._ended:
                payloads = self._parse(await self._answer.read(self._limit))
                if payloads and (self._limit is None or self._begins(payloads)):
                    return self._looked_through(payloads)
            if not self._complete:
                self._check_end()
            raise StopAsyncIteration
        except BaseException:
            await self._answer.aclose()
            raise

    def _begins(self, payloads: list[bytes]) -> bool:
        """Whether the first token is among them, which then stand behind all that came before."""
        if all(map(self._format.is_prelude, payloads)):
            self._opening += payloads
            return False
        self._limit = None
        payloads[:0] = self._opening
        return True

    def _looked_through(self, payloads: list[bytes]) -> list[bytes]:
        """For the end, behind which nothing counts."""
        self._last.extend(payloads)
        end = self._format.find_end(payloads)
        if end is None:
            return payloads
        self._ended = self._complete = True
        self._answer.linger()
        return payloads[: end + 1]

    def _check_end(self) -> None:
        """Raises ProtocolFailure where the stream broke off."""
        if self._fault is not None:
            raise self._fault
        if not any(map(self._format.is_finish, self._last)):
            raise ProtocolFailure("the event stream ended before the answer did")

    def _parse(self, piece: bytes) -> list[bytes]:
        if not piece:
            self._ended = True
            return self._sound(self._parser.close())
        clean, nul, _ = piece.partition(b"\0")
        if nul:
            self._fault = ProtocolFailure(_NO_JSON)
        try:
            return self._sound(self._parser.feed(clean))
        except EventTooLargeError as error:
            raise ProtocolFailure(str(error)) from error

    def _sound(self, payloads: list[bytes]) -> list[bytes]:
        """Those before the first that a client may not see or can't read; the failure that this is comes behind them.

        Looks at whole payloads: the network may cut anything in two.
        """
        secret = self._secret
        if secret and secret in b"\n".join(payloads):
            self._fault = ProtocolFailure("a stream that repeats our key, which is not for the client to see")
            payloads = [*takewhile(lambda payload: secret not in payload, payloads)]
        if _may_all_be_json(payloads):
            return payloads
        self._fault = ProtocolFailure(_NO_JSON)
        return [*takewhile(_may_be_json, payloads)]


def _may_all_be_json(payloads: list[bytes]) -> bool:
    """Seen at one glance where each is one line, as a rule: every line end lies between two objects."""
    if len(payloads) == 1:
        return _may_be_json(payloads[0])
    objects = b"\n".join(payloads[:-1] if payloads[-1:] == [DONE] else payloads)
    if objects.count(b"\n") == objects.count(_BETWEEN_TWO) and _is_one_object(objects):
        return True
    return all(map(_may_be_json, payloads))


def _may_be_json(payload: bytes) -> bool:
    """Whether a payload looks like an object: a client's parser would stumble over anything else."""
    return payload == DONE or _is_one_object(payload.strip())


def _is_one_object(text: bytes) -> bool:
    """By how it begins and ends, if it is UTF-8."""
    if not (text.startswith(b"{") and text.endswith(b"}")):
        return False
    try:
        return text.isascii() or bool(text.decode())
    except UnicodeDecodeError:
        return False
