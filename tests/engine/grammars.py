"""Grammars over the toy's bytes: compiled, asked for what they allow, and followed at random."""

from typing import Any

import numpy as np

from engine.grammar import GrammarCompiler, Matcher
from engine.plan import TokenTable
from engine.types import Grammar
from tests.engine.toy_runner import BOS, EOS, VOCAB, ToyTokenizer

COLUMNS = VOCAB + 6  # a model may have more logits than its tokenizer has tokens


class Bytes(ToyTokenizer):
    """The toy's tokens, and nothing for the columns beyond."""

    def token_bytes(self, token_id: int) -> bytes:
        return super().token_bytes(token_id) if token_id < VOCAB else b""


COMPILER = GrammarCompiler(Bytes(), COLUMNS)


def compiled(kind: Any, source: str = "") -> Matcher:
    return COMPILER.compile(Grammar(kind=kind, source=source))


def allowed(matcher: Matcher, vocab_size: int = COLUMNS) -> list[int]:
    row = np.full((vocab_size + 31) // 32, -1, np.int32)
    matcher.fill_mask(row)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    return [int(token) for token in np.flatnonzero(bits)]


def write(matcher: Matcher, text: str, tokenizer: TokenTable | None = None) -> None:
    for token_id in (tokenizer or Bytes()).encode(text, add_bos=False):
        matcher.accept(token_id)


def wander(matcher: Matcher, draw: Any, max_tokens: int = 400) -> bytes | None:
    """A random answer, all of whose tokens the masks allowed; None when it did not come to an end."""
    text = bytearray()
    for _ in range(max_tokens):
        choices = allowed(matcher)
        assert choices, f"nothing may follow {bytes(text)!r}: {matcher.error}"
        assert (EOS in choices) == matcher.is_complete
        assert BOS not in choices
        assert max(choices) <= EOS
        # Ends come first, so that most answers end.
        likely = [token for token in choices if token in (EOS, *b'"}]')] or choices
        token_id = draw(likely if draw([True, False]) else choices)
        matcher.accept(token_id)
        if token_id == EOS:
            assert matcher.is_finished
            return bytes(text)
        text.append(token_id)
    return None
