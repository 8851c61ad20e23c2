"""tokenizer.json -> Tokenizer. Control tokens and the space before a text are taken out of the file's own pipeline."""

import json
import re
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import normalizers, pre_tokenizers

from engine.errors import ModelLoadError
from engine.tokenizer.tokenizer import SpacePrefix, Tokenizer
from engine.tokenizer.vocabulary import END_TOKENS, byte_level_bytes, sentencepiece_bytes

# Looked for from where white space begins only: from each of its characters would take quadratic time.
_SPACE_BEFORE = r"(?:(?<!\s)\s+)?"


def tokenizer_from_folder(folder: Path, eos_ids: frozenset[int], config: dict[str, Any]) -> Tokenizer:
    """Read tokenizer.json; `config` is tokenizer_config.json's content. Raises ModelLoadError."""
    path = folder / "tokenizer.json"
    if not path.exists():
        raise ModelLoadError(f"{path}: missing; a model folder needs config.json, tokenizer.json and safetensors")
    try:
        backend = Backend.from_file(str(path))
    except Exception as error:  # the Rust library raises plain Exception for whatever is wrong with the file
        raise ModelLoadError(f"{path}: not a tokenizer ({error}); download it again") from error
    added = backend.get_added_tokens_decoder()
    special = {token.content: i for i, token in added.items() if token.special}
    bos, eos = (_token_text(config.get(key)) for key in ("bos_token", "eos_token"))
    bos_id = backend.token_to_id(bos) if bos else None
    ends = {i for token, i in special.items() if token in END_TOKENS} | set(eos_ids)
    eos_id = backend.token_to_id(eos) if eos else None
    if eos_id is not None:
        ends.add(eos_id)
    adds_bos = backend.encode("", add_special_tokens=True).ids[:1] == [bos_id]  # what the post-processor does
    space_prefix = _take_space_prefix(backend)
    tokens = _tokens(backend)
    return Tokenizer(
        backend,
        token_bytes=byte_level_bytes(tokens, special.values(), added)
        if "ByteLevel" in _component(backend.decoder)
        else sentencepiece_bytes(tokens, special.values()),
        special_tokens=special,
        bos_id=bos_id,
        eos_id=eos_id,
        eos_ids=frozenset(ends),
        add_bos=bool(config.get("add_bos_token", adds_bos)),
        space_prefix=space_prefix,
        special_patterns={
            token.content: _SPACE_BEFORE * token.lstrip + re.escape(token.content) + r"\s*" * token.rstrip
            for token in added.values()
            if token.special and (token.lstrip or token.rstrip)
        },
    )


def _tokens(backend: Backend) -> list[str]:
    vocabulary = backend.get_vocab(with_added_tokens=True)
    tokens = [""] * (max(vocabulary.values(), default=-1) + 1)  # ids may have gaps
    for token, i in vocabulary.items():
        tokens[i] = token
    return tokens


def _token_text(value: Any) -> str | None:
    """tokenizer_config.json writes a token as a string or as an object with `content`."""
    return value.get("content") if isinstance(value, dict) else value


def _component(part: Any) -> str:
    """The JSON description of a normalizer, pre-tokenizer or decoder; "null" for none."""
    return "null" if part is None else part.__getstate__().decode()


def _take_space_prefix(backend: Backend) -> SpacePrefix:
    """The pipeline would prefix every piece it is given; told apart by position that is `Tokenizer.encode`'s to do."""
    pre_tokenizer = json.loads(_component(backend.pre_tokenizer))
    for part in _parts(pre_tokenizer, "pretokenizers"):
        if part["type"] == "Metaspace" and part["prepend_scheme"] != "never":
            prefix = SpacePrefix("every" if part["prepend_scheme"] == "always" else "first")
            part["prepend_scheme"] = "never"
            backend.pre_tokenizer = _rebuilt(pre_tokenizers.Sequence([]), pre_tokenizer)
            return prefix
    normalizer = json.loads(_component(backend.normalizer))
    prefixes = [part for part in _parts(normalizer, "normalizers") if part["type"] == "Prepend"]
    if [part["prepend"] for part in prefixes] != ["\u2581"]:
        return SpacePrefix()
    others = [part for part in _parts(normalizer, "normalizers") if part not in prefixes]
    backend.normalizer = _rebuilt(normalizers.Sequence([]), {"type": "Sequence", "normalizers": others})
    return SpacePrefix("every", doubled=True)


def _parts(component: dict[str, Any] | None, list_key: str) -> list[dict[str, Any]]:
    if component is None:
        return []
    return component[list_key] if component["type"] == "Sequence" else [component]


def _rebuilt(empty: Any, description: dict[str, Any]) -> Any:
    empty.__setstate__(json.dumps(description).encode())
    return empty
