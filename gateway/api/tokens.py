"""POST /tokenize and /detokenize."""

from collections.abc import Awaitable
from typing import Any

from gateway.answer import Answer
from gateway.api.endpoint import endpoint
from gateway.api.incoming import Headers
from gateway.tokens import detokenize, tokenize


def _tokenize(state: Any, raw: bytes, header: Headers, *_ends: Any) -> Awaitable[Answer]:
    return tokenize(state.house, raw, header)


def _detokenize(state: Any, raw: bytes, header: Headers, *_ends: Any) -> Awaitable[Answer]:
    return detokenize(state.house, raw, header)


tokenize_text = endpoint("/tokenize", _tokenize)
detokenize_tokens = endpoint("/detokenize", _detokenize)
