"""Text to token ids and back, from GGUF metadata or a tokenizer.json. Knows no model and no chat template.

Text that looks like a control token is one only outside a GUARD: the chat template guards what users wrote, so a
message that says "<|im_end|>" stays text. Raw prompts are not guarded; whoever writes one may write control tokens.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import ModelLoadError

if TYPE_CHECKING:
    import tokenizers

GUARD = "\ufdd0"  # a Unicode noncharacter: never part of anybody's text

# How GGUF's `tokenizer.ggml.pre` splits text before BPE, as a Split pattern (none: GPT-2's own, in ByteLevel).
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_PATTERNS = {
    "gpt-2": (_GPT2, False),
    "default": (_GPT2, False),
    "smollm": (_GPT2, True),
    "llama-bpe": (_LLAMA3, False),
    "llama3": (_LLAMA3, False),
    "qwen2": (_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"), False),
}
_CONTROL, _USER_DEFINED = 3, 4  # GGUF's token types
_ENDS = frozenset(
    {
        "<|endoftext|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<|end|>",
        "<end_of_turn>",
        "<EOT>",
        "</s>",
    }
)
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Tokenizer:
    """`backend` does the splitting and merging; special tokens are cut out here.

    bos_id and eos_id are None when the model has none; `eos_ids` holds every token that ends an answer. Raises
    ModelLoadError when one of them is no number: they come from the file.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        special_ids: frozenset[int],
        bos_id: int | None,
        eos_id: int | None,
        eos_ids: frozenset[int],
        add_bos: bool,
    ) -> None:
        for name, token_id in (("bos", bos_id), ("eos", eos_id), *(("eos", each) for each in eos_ids)):
            if token_id is not None and (not isinstance(token_id, int) or token_id < 0):
                raise ModelLoadError(f"the {name} token's id is {token_id!r}, no token id; the file is damaged")
        self._backend = backend
        self._backend.encode_special_tokens = True  # special tokens are cut out by `_special`, not by the backend
        self.vocab_size = backend.get_vocab_size(with_added_tokens=True)
        self.special_ids = special_ids
        self.special_tokens = {token: i for i in sorted(special_ids) if (token := backend.id_to_token(i))}
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.eos_ids = eos_ids
        self.add_bos = add_bos and bos_id is not None
        longest_first = sorted(self.special_tokens, key=len, reverse=True)
        self._special = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else None
        # The decoder may be a Sequence of others: ByteLevel anywhere within its description is meant.
        self._byte_level = '"ByteLevel"' in json.dumps(json.loads(backend.to_str())["decoder"])
        self._bytes = self._token_table()

    def encode(self, text: str, add_bos: bool | None = None) -> list[int]:
        """Token ids of `text`; add_bos None follows the model's rule. Unguarded control tokens are recognised."""
        ids = [self.bos_id] if (self.add_bos if add_bos is None else add_bos) and self.bos_id is not None else []
        pieces = self._special.split(text) if self._special else [text]
        for piece in pieces:
            if piece in self.special_tokens:
                ids.append(self.special_tokens[piece])
            elif piece:
                # encode_batch, unlike encode, lets go of the GIL: a long prompt must not hold up everybody's streams.
                plain = piece.replace(GUARD, "")
                ids.extend(self._backend.encode_batch_fast([plain], add_special_tokens=False)[0].ids)
        return ids

    def decode(self, ids: list[int]) -> str:
        """The text of `ids`, control tokens left out, bytes that are no UTF-8 as U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to the text, as raw bytes; b"" for control tokens and ids beyond the vocabulary."""
        return self._bytes[token_id] if 0 <= token_id < len(self._bytes) else b""

    def _token_table(self) -> list[bytes]:
        to_byte = {character: byte for byte, character in byte_alphabet().items()}
        added = set(self._backend.get_added_tokens_decoder())
        table = [b""] * self.vocab_size
        for token, i in self._backend.get_vocab(with_added_tokens=True).items():
            if i in self.special_ids or i >= self.vocab_size:
                continue
            if i in added:
                table[i] = token.encode()
            elif self._byte_level:
                table[i] = bytes(to_byte[c] for c in token) if all(c in to_byte for c in token) else token.encode()
            elif match := _BYTE_TOKEN.fullmatch(token):
                table[i] = bytes([int(match[1], 16)])
            else:
                table[i] = token.replace("\u2581", " ").encode()
        return table

    @classmethod
    def from_gguf(cls, metadata: dict[str, Any]) -> Tokenizer:
        """Build byte-level BPE from GGUF's tokens, token types and merges. Raises ModelLoadError."""
        tokens, merges = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.merges")
        kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
        if kind != "gpt2" or not isinstance(pre, str) or pre not in _PATTERNS:
            raise ModelLoadError(
                f"the file's tokenizer is {kind!r} with pre-tokeniser {pre!r}; byte-level BPE with one of "
                f"{sorted(_PATTERNS)} is supported: use the model's safetensors folder with its tokenizer.json"
            )
        if not tokens or not merges:
            raise ModelLoadError("tokenizer.ggml.tokens or .merges is missing; the file is damaged: download it again")
        types = metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
        if len(types) != len(tokens):
            raise ModelLoadError(
                f"tokenizer.ggml.token_type has {len(types)} entries for {len(tokens)} tokens; the file is damaged"
            )
        special = frozenset(i for i, kind in enumerate(types) if kind == _CONTROL)
        literal = [token for token, kind in zip(tokens, types, strict=True) if kind == _USER_DEFINED]
        ends = {i for i in special if tokens[i] in _ENDS}
        for key in ("eos_token_id", "eot_token_id"):
            if (i := metadata.get(f"tokenizer.ggml.{key}")) is not None:
                ends.add(i)
        return cls(
            _byte_level_bpe(tokens, merges, [tokens[i] for i in sorted(special)], literal, pre),
            special_ids=special,
            bos_id=metadata.get("tokenizer.ggml.bos_token_id"),
            eos_id=metadata.get("tokenizer.ggml.eos_token_id"),
            eos_ids=frozenset(ends),
            add_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
        )

    @classmethod
    def from_folder(cls, folder: Path, eos_ids: frozenset[int], config: dict[str, Any]) -> Tokenizer:
        """Read tokenizer.json; `config` is tokenizer_config.json's content. Raises ModelLoadError."""
        import tokenizers

        path = folder / "tokenizer.json"
        if not path.exists():
            raise ModelLoadError(f"{path}: missing; a model folder needs config.json, tokenizer.json and safetensors")
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the Rust library raises plain Exception for whatever is wrong with the file
            raise ModelLoadError(f"{path}: not a tokenizer ({error}); download it again") from error
        special = {i for i, token in backend.get_added_tokens_decoder().items() if token.special}
        bos, eos = (_token_text(config.get(key)) for key in ("bos_token", "eos_token"))
        bos_id = backend.token_to_id(bos) if bos else None
        found = {i for i in special if backend.id_to_token(i) in _ENDS} | set(eos_ids)
        eos_id = backend.token_to_id(eos) if eos else None
        if eos_id is not None:
            found.add(eos_id)
        adds_bos = backend.encode("", add_special_tokens=True).ids[:1] == [bos_id]  # what the post-processor does
        return cls(
            backend,
            special_ids=frozenset(special),
            bos_id=bos_id,
            eos_id=eos_id,
            eos_ids=frozenset(found),
            add_bos=bool(config.get("add_bos_token", adds_bos)),
        )


def _token_text(value: Any) -> str | None:
    """tokenizer_config.json writes a token as a string or as an object with `content`."""
    return value.get("content") if isinstance(value, dict) else value


def _byte_level_bpe(
    tokens: list[str], merges: list[str], special: list[str], literal: list[str], pre: str
) -> tokenizers.Tokenizer:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {token: i for i, token in enumerate(tokens)}
    try:
        pairs = [(left, right) for left, right in (merge.split(" ") for merge in merges)]
        backend = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    except Exception as error:  # ValueError of the split, or the Rust library's plain Exception
        raise ModelLoadError(f"the file's BPE merges are unusable ({error}); download it again") from error
    pattern, digits = _PATTERNS[pre]
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    steps.append(pre_tokenizers.Split(Regex(pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens([AddedToken(token, normalized=False) for token in literal])
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return backend


def byte_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte (Radford et al. 2019, `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in alphabet)
    alphabet.update({byte: chr(256 + i) for i, byte in enumerate(list(others))})
    return alphabet
