"""Log probabilities in OpenAI's two shapes: a list of objects for chats, parallel lists for text completions.

Knows no engine: a token comes as its bytes, or as the name of a control token, which is no part of any text.
"""

import codecs
from collections.abc import Sequence
from typing import Any

import msgspec

MINIMUM = -9999.0  # what OpenAI says for "very unlikely"; JSON has no infinity


class TokenLogprob(msgspec.Struct, frozen=True):
    """`raw`: what the token adds to the text. `name`: of a control token. `logprob`: None where nothing came before."""

    raw: bytes
    logprob: float | None
    name: str = ""
    top: tuple["TokenLogprob", ...] = ()

    @property
    def text(self) -> str:
        """Bytes that are no whole characters are written out, as OpenAI does."""
        if self.name:
            return self.name
        try:
            return self.raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in self.raw)

    @property
    def value(self) -> float | None:
        return None if self.logprob is None else max(self.logprob, MINIMUM)


def chat_logprobs(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    """`choices[].logprobs` of a chat completion or of a chunk."""
    content = [_entry(token) | {"top_logprobs": [_entry(other) for other in token.top]} for token in tokens]
    return {"content": content, "refusal": None}


def _entry(token: TokenLogprob) -> dict[str, Any]:
    return {
        "token": token.text,
        "logprob": token.value,
        "bytes": None if token.name else list(token.raw),
    }


class TextLogprobs:
    """`choices[].logprobs` of a text completion, chunk by chunk: the offsets count from the answer's beginning."""

    def __init__(self) -> None:
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")

    def take(self, tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(self._decoder.decode(token.raw))
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.value for token in tokens],
            "top_logprobs": [_most_likely(token) for token in tokens],
            "text_offset": offsets,
        }


def _most_likely(token: TokenLogprob) -> dict[str, float | None] | None:
    """The most likely tokens, and the chosen one if it is none of them."""
    if token.logprob is None:
        return None
    return {other.text: other.value for other in (*token.top, token)} if token.top else {}
