"""Encodes text and decodes tokens, whatever kind of vocabulary lies beneath.

Text that looks like a control token is one only outside a GUARD: the chat template guards what users wrote, so a
message that says "<|im_end|>" stays text. Raw prompts are not guarded; whoever writes one may write control tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from engine.detokenizer import Detokenizer
from engine.errors import ModelLoadError
from engine.tokenizer.vocabulary import TokenBytes

if TYPE_CHECKING:
    import tokenizers

GUARD = "\ufdd0"  # a Unicode noncharacter: never part of anybody's text


@dataclass(frozen=True, slots=True)
class SpacePrefix:
    """The space that SentencePiece vocabularies write before a text, so that its first word is like all others.

    `where`: before the text alone, or also after every control token. `doubled`: even where there is a space already.
    """

    where: Literal["never", "first", "every"] = "never"
    doubled: bool = False

    def add(self, text: str, *, first: bool) -> str:
        wanted = self.where == "every" or (self.where == "first" and first)
        return " " + text if wanted and (self.doubled or not text.startswith((" ", "\u2581"))) else text


class Tokenizer:
    """`backend` splits and merges, and adds nothing; control tokens and the first space are dealt with here.

    special_patterns: of control tokens that swallow the white space beside them, with that space.
    token_bytes: b"" for control tokens. bos_id and eos_id are None when the model has none; `eos_ids` holds every token
    that ends an answer. Raises ModelLoadError when one of them is no token id.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        token_bytes: TokenBytes,
        special_tokens: dict[str, int],
        bos_id: int | None,
        eos_id: int | None,
        eos_ids: frozenset[int],
        add_bos: bool,
        space_prefix: SpacePrefix,
        special_patterns: Mapping[str, str] = {},
    ) -> None:
        for name, token_id in (("bos", bos_id), ("eos", eos_id), *(("eos", each) for each in eos_ids)):
            if token_id is not None and (not isinstance(token_id, int) or token_id < 0):
                raise ModelLoadError(f"the {name} token's id is {token_id!r}, no token id; the file is damaged")
        for name, token_id in (("bos", bos_id), ("eos", eos_id)):
            if token_id is not None and token_id >= len(token_bytes):
                raise ModelLoadError(
                    f"the {name} token's id is {token_id}, beyond the {len(token_bytes)} tokens; the file is damaged"
                )
        self._backend = backend
        self._backend.encode_special_tokens = True  # special tokens are cut out by `_special`, not by the backend
        self._bytes = token_bytes
        self._space_prefix = space_prefix
        self.vocab_size = len(token_bytes)
        self.special_tokens = special_tokens
        self.special_ids = frozenset(special_tokens.values())
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.eos_ids = eos_ids
        self.add_bos = add_bos and bos_id is not None
        longest_first = sorted(filter(None, special_tokens), key=len, reverse=True)
        patterns = [special_patterns.get(token) or re.escape(token) for token in longest_first]
        self._special = re.compile(f"({'|'.join(patterns)})") if patterns else None

    def encode(self, text: str, add_bos: bool | None = None) -> list[int]:
        """Token ids of `text`; add_bos None follows the model's rule. Unguarded control tokens are recognised."""
        ids = [self.bos_id] if (self.add_bos if add_bos is None else add_bos) and self.bos_id is not None else []
        pieces = self._special.split(text) if self._special else [text]
        for index, piece in enumerate(pieces):
            if index % 2:  # what the pattern matched
                ids.append(self.special_tokens[piece if piece in self.special_tokens else piece.strip()])
            elif plain := piece.replace(GUARD, ""):
                prefixed = self._space_prefix.add(plain, first=index == 0)
                # encode_batch, unlike encode, lets go of the GIL: a long prompt must not hold up everybody's streams.
                ids.extend(self._backend.encode_batch_fast([prefixed], add_special_tokens=False)[0].ids)
        return ids

    def decode(self, ids: list[int]) -> str:
        """The text of `ids` as a `Detokenizer` gives it, without control tokens and the spaces that `encode` adds."""
        detokenizer = Detokenizer(self.bytes_after)
        return "".join(map(detokenizer.push, ids))

    def show(self, tokens: Iterable[str]) -> None:
        """Let these control tokens have their own text from now on: in an answer they say where calls begin."""
        for token in tokens:
            token_id = self.special_tokens.get(token)
            if token_id is not None and token_id not in self.eos_ids:
                self._bytes[token_id] = token.encode()

    def save(self, path: Path) -> None:
        """Write a tokenizer.json for other programs; the spaces and control tokens that this class deals with aside."""
        self._backend.save(str(path))

    def token_bytes(self, token_id: int) -> bytes:
        """A token's raw bytes; b"" for control tokens and ids beyond the vocabulary."""
        return self._bytes[token_id] if 0 <= token_id < len(self._bytes) else b""

    def bytes_after(self, previous: int | None, token_id: int) -> bytes:
        """What a token adds to the text after `previous` (None: at its beginning).

        That is all its bytes, but for the space that `encode` would have put there by itself.
        """
        found = self.token_bytes(token_id)
        return found[1:] if found.startswith(b" ") and self._prefixes_after(previous) else found

    def _prefixes_after(self, previous: int | None) -> bool:
        if self._space_prefix.where == "every":
            return previous is None or previous in self.special_ids
        return self._space_prefix.where == "first" and previous in (None, self.bos_id)
