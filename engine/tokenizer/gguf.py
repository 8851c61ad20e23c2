"""GGUF's tokenizer metadata -> Tokenizer: byte-level BPE ("gpt2"), and SentencePiece's BPE by scores ("llama").

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer.
"""

import logging
import re
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from engine.errors import ModelLoadError
from engine.tokenizer.pre_tokenisers import PRE_TOKENISERS, PreTokeniser
from engine.tokenizer.tokenizer import SpacePrefix, Tokenizer
from engine.tokenizer.vocabulary import END_TOKENS, byte_level_bytes, sentencepiece_bytes

log = logging.getLogger(__name__)
REMEDY = "the file is damaged: download it again"
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6  # token types
_PHI3_KEEPS_SPACE = ("<unk>", "<s>", "<|endoftext|>")
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def tokenizer_from_gguf(metadata: dict[str, Any]) -> Tokenizer:
    """`metadata`: the file's, but for merges, which are pairs of texts. Raises ModelLoadError."""
    return _Vocabulary(metadata).tokenizer()


class _Vocabulary:
    """The file's tokens with their types, checked."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self._metadata = metadata
        self._tokens = self._strings("tokens")
        self._types = self._get("token_type") or [_NORMAL] * len(self._tokens)
        if not isinstance(self._types, list) or len(self._types) != len(self._tokens):
            raise ModelLoadError(
                f"tokenizer.ggml.token_type has {len(self._types)} entries for {len(self._tokens)} tokens; {REMEDY}"
            )
        unusual = [i for i, kind in enumerate(self._types) if kind != _NORMAL]
        self._special = [i for i in unusual if self._is_special(i)]
        hidden = set(self._special)
        self._literal = [i for i in unusual if self._types[i] == _USER_DEFINED and i not in hidden]

    def _is_special(self, token_id: int) -> bool:
        """Some files give turn markers as user-defined: a user's message could write them then."""
        kind, token = self._types[token_id], self._tokens[token_id]
        if kind == _USER_DEFINED:
            return token in END_TOKENS or token == "<start_of_turn>"
        return kind in (_UNKNOWN, _CONTROL)

    def tokenizer(self) -> Tokenizer:
        kind, pre = self._get("model"), self._get("pre", "default")
        if kind == "gpt2" and pre == "default":
            log.warning(
                "the file does not say how to cut words (tokenizer.ggml.pre): answers may suffer; convert it anew"
            )
        if kind == "llama":
            backend, prefix, add_bos = self._scored_bpe(), self._get("add_space_prefix", True), True
            token_bytes = sentencepiece_bytes(self._tokens, self._special)
        elif kind == "gpt2" and isinstance(pre, str) and pre in PRE_TOKENISERS:
            rule = PRE_TOKENISERS[pre]
            backend, prefix, add_bos = self._byte_level_bpe(rule), False, rule.add_bos
            token_bytes = byte_level_bytes(self._tokens, self._special, self._literal)
        else:
            raise ModelLoadError(
                f"the file's tokenizer is {kind!r} with pre-tokeniser {pre!r}; SentencePiece's BPE ('llama') and "
                f"byte-level BPE ('gpt2') with one of {sorted(PRE_TOKENISERS)} are supported: "
                "use the model's safetensors folder with its tokenizer.json"
            )
        ends = {i for i in self._special if self._tokens[i] in END_TOKENS}
        ends.update(i for key in _END_KEYS if (i := self._get(key)) is not None)
        return Tokenizer(
            backend,
            token_bytes=token_bytes,
            special_tokens={self._tokens[i]: i for i in self._special},
            bos_id=self._get("bos_token_id"),
            eos_id=self._get("eos_token_id"),
            eos_ids=frozenset(ends),
            add_bos=bool(self._get("add_bos_token", add_bos)),
            space_prefix=SpacePrefix("every", doubled=True) if prefix else SpacePrefix(),
            special_patterns=self._special_patterns(),
        )

    def _special_patterns(self) -> dict[str, str]:
        """Phi-3's control tokens swallow the white space after them, and GGUF has no word for it (nor for lstrip).

        llama.cpp knows them by the model's name, which anybody may change; here it is the architecture and vocabulary.
        """
        if self._metadata.get("general.architecture") != "phi3" or self._get("model") != "llama":
            return {}
        swallowing = {self._tokens[i] for i in self._special} - {*_PHI3_KEEPS_SPACE, ""}
        return {token: re.escape(token) + r"\s*" for token in swallowing}

    def _byte_level_bpe(self, rule: PreTokeniser) -> Backend:
        merges = self._get("merges")
        if not isinstance(merges, list) or not merges:
            raise ModelLoadError(f"tokenizer.ggml.merges is missing or no list of pairs; {REMEDY}")
        backend = _bpe(
            vocab=dict(zip(self._tokens, range(len(self._tokens)), strict=True)),
            merges=merges,
            ignore_merges=rule.ignore_merges,
        )
        splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in rule.patterns]
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        backend.decoder = decoders.ByteLevel()
        backend.add_tokens([AddedToken(self._tokens[i], normalized=False) for i in self._literal])
        return backend

    def _scored_bpe(self) -> Backend:
        """Two pieces merge when together they are a token; the highest score first (Kudo and Richardson 2018)."""
        scores = self._get("scores")
        if not isinstance(scores, list) or len(scores) != len(self._tokens):
            raise ModelLoadError(f"tokenizer.ggml.scores is missing or not one a token; {REMEDY}")
        unknown = next((t for t, kind in zip(self._tokens, self._types, strict=True) if kind == _UNKNOWN), None)
        backend = _bpe(
            vocab=dict(zip(self._tokens, range(len(self._tokens)), strict=True)),
            merges=self._merges_by_score(scores),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=_BYTE in self._types,
        )
        backend.normalizer = normalizers.Replace(" ", "\u2581")
        # Matched in normalised text, as their own spaces are U+2581 too; never merged with what stands beside them.
        backend.add_tokens([AddedToken(self._tokens[i], normalized=True) for i in self._literal])
        return backend

    def _merges_by_score(self, scores: list[float]) -> list[tuple[str, ...]]:
        rank = {
            token: (-score, i)
            for i, (token, score, kind) in enumerate(zip(self._tokens, scores, self._types, strict=True))
            if kind == _NORMAL
        }
        found = [
            (rank[token], token[:cut], token[cut:])
            for token in rank
            for cut in range(1, len(token))
            if token[:cut] in rank and token[cut:] in rank
        ]
        return [(left, right) for _, left, right in sorted(found)]

    def _get(self, key: str, default: Any = None) -> Any:
        return self._metadata.get(f"tokenizer.ggml.{key}", default)

    def _strings(self, key: str) -> list[str]:
        found = self._get(key)
        if not isinstance(found, list) or not found or not isinstance(found[0], str):  # arrays are of one type
            raise ModelLoadError(f"tokenizer.ggml.{key} is missing or no list of texts; {REMEDY}")
        return found


def _bpe(**options: Any) -> Backend:
    try:
        return Backend(models.BPE(**options))
    except Exception as error:  # all that the Rust library raises, whatever is wrong with vocabulary and merges
        raise ModelLoadError(f"the file's BPE merges are unusable ({error}); {REMEDY}") from error
