"""One choice of the bundled engine's answer in the making: its text, its calls and its tokens. Knows no chunks."""

from collections.abc import Sequence
from typing import Any

import msgspec

from engine.client import EngineClient
from engine.tools.parser import ToolCallParser
from engine.tools.types import CallBegins, Piece, Text
from engine.types import Delta, Logprob, TokenLogprobs
from gateway.wire.logprobs import TextLogprobs, TokenLogprob, chat_logprobs
from gateway.wire.responses import Call, Choice


class EngineChoice:
    """`prompt`: its tokens. `echo`: its text, if it is wanted back. `parser`: finds calls, where some can be made.

    `text_logprobs`: in whose shape logprobs are told for text completions; None for chats.
    """

    def __init__(
        self,
        client: EngineClient,
        prompt: Sequence[int],
        *,
        echo: str = "",
        parser: ToolCallParser | None = None,
        text_logprobs: TextLogprobs | None = None,
    ) -> None:
        self._client = client
        self._prompt = prompt
        self._previous = prompt[-1] if prompt else None  # the token before the next one
        self._echo = echo
        self._parser = parser
        self._text_logprobs = text_logprobs
        self.last = Delta(text="")  # the latest of its deltas
        self.has_begun = False
        self._texts: list[str] = []
        self._calls: list[tuple[CallBegins, list[str]]] = []
        self._tokens: list[TokenLogprob] = []

    @property
    def finish_reason(self) -> str:
        """That of calls is "tool_calls", unless the last was cut off: its arguments are no JSON."""
        parser, reason = self._parser, str(self.last.finish_reason)
        has_calls = parser is not None and parser.num_calls > 0 and not parser.is_cut_off
        return "tool_calls" if has_calls and reason == "stop" else reason

    def pieces(self, delta: Delta) -> list[Piece]:
        """What a delta adds; the first one brings back the prompt."""
        self.last, self.has_begun = delta, True
        echo, self._echo = self._echo, ""
        pieces: list[Piece] = [Text(echo)] if echo else []
        if self._parser is None:
            return [*pieces, Text(delta.text)] if delta.text else pieces
        pieces += self._parser.push(delta.text)
        return pieces + self._parser.finish() if delta.finish_reason is not None else pieces

    def tokens(self, delta: Delta) -> list[TokenLogprob]:
        """What a delta says of the tokens it adds. Control tokens are no part of the text, and left out."""
        tokens = [self._token(each) for each in delta.logprobs]
        return [token for token in tokens if not token.name]

    def prompt_tokens(self, logprobs: Sequence[TokenLogprobs]) -> list[TokenLogprob]:
        """The same of the prompt, control tokens included; nothing is known of the first one."""
        self._previous = None
        tokens = [self._token(TokenLogprobs(token_id, 0.0)) for token_id in self._prompt[:1]]
        tokens = [msgspec.structs.replace(token, logprob=None) for token in tokens]
        return self._as_written(tokens + [self._token(each) for each in logprobs])

    def told(self, tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
        """Logprobs in the endpoint's shape; each token once, in order."""
        return self._text_logprobs.take(tokens) if self._text_logprobs is not None else chat_logprobs(tokens)

    def keep(self, pieces: Sequence[Piece], tokens: Sequence[TokenLogprob]) -> None:
        """For `whole`."""
        self._tokens += tokens
        for piece in pieces:
            if isinstance(piece, Text):
                self._texts.append(piece.text)
            elif isinstance(piece, CallBegins):
                self._calls.append((piece, []))
            else:
                self._calls[piece.index][1].append(piece.text)

    def whole(self, *, with_logprobs: bool) -> Choice:
        calls = tuple(Call(begin.id, begin.name, "".join(arguments)) for begin, arguments in self._calls)
        logprobs = self.told(self._tokens) if with_logprobs else None
        return Choice("".join(self._texts), self.finish_reason, calls, logprobs)

    def _as_written(self, tokens: Sequence[TokenLogprob]) -> list[TokenLogprob]:
        """A control token that the echoed prompt spells out is a part of its text."""
        text, position = self._echo.encode(), 0
        written = []
        for token in tokens:
            if token.name and text.startswith(token.name.encode(), position):
                token = msgspec.structs.replace(token, raw=token.name.encode(), name="")
            position += len(token.raw)
            written.append(token)
        return written

    def _token(self, logprobs: TokenLogprobs) -> TokenLogprob:
        chosen = self._entry(Logprob(logprobs.token_id, logprobs.logprob))
        top = tuple(map(self._entry, logprobs.top))
        self._previous = logprobs.token_id
        return msgspec.structs.replace(chosen, top=top)

    def _entry(self, logprob: Logprob) -> TokenLogprob:
        """What a token adds to the text in the next place."""
        name = self._client.token_name(logprob.token_id)
        raw = b"" if name else self._client.bytes_after(self._previous, logprob.token_id)
        return TokenLogprob(raw, logprob.logprob, name)
