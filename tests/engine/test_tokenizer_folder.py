"""tokenizer.json files of SentencePiece vocabularies: ids and text are those of the file's own pipeline."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tokenizer_gguf import REFERENCE
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from engine.tokenizer import GUARD, Tokenizer
from engine.tokenizer.folder import tokenizer_from_folder

SPACE = "\u2581"
KINDS = ["prepend", "always", "first", "never"]
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=GUARD + SPACE + "<"))


def backend_of(kind: str) -> Backend:
    """As the converters of Llama ("prepend": legacy), TinyLlama, Mistral and Gemma write it."""
    known = REFERENCE["llama"]
    tokens, scores = known["tokens"], known["scores"]
    rank = {
        token: -score for token, score, type_ in zip(tokens, scores, known["token_types"], strict=True) if type_ == 1
    }
    merges = sorted(
        (rank[token], token[:cut], token[cut:])
        for token in rank for cut in range(1, len(token)) if token[:cut] in rank and token[cut:] in rank
    )  # fmt: skip
    backend = Backend(
        models.BPE(
            {token: i for i, token in enumerate(tokens)}, [(left, right) for _, left, right in merges],
            unk_token="<unk>", fuse_unk=True, byte_fallback=True,
        )
    )  # fmt: skip
    if kind == "prepend":
        backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    elif kind == "never":
        backend.normalizer = normalizers.Replace(" ", SPACE)
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=kind, split=False)
    steps: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence(steps if kind == "never" else [*steps, decoders.Strip(" ", 1, 0)])
    backend.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in ("<unk>", "<s>", "</s>")]
    )
    return backend


def tokenizer_of(kind: str, folder: Path) -> Tokenizer:
    backend_of(kind).save(str(folder / "tokenizer.json"))
    return tokenizer_from_folder(folder, frozenset(), {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": False})


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tokenizer, Backend]]:
    return {kind: (tokenizer_of(kind, tmp_path_factory.mktemp(kind)), backend_of(kind)) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(text=TEXT)
def test_ids_and_text_are_those_of_the_file_s_own_pipeline(
    both: dict[str, tuple[Tokenizer, Backend]], kind: str, text: str
) -> None:
    tokenizer, backend = both[kind]
    ids = backend.encode(text).ids
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == backend.decode(ids)


@pytest.mark.parametrize(
    ("kind", "pieces"),
    [
        ("prepend", ["\u2581the", "</s>", "\u2581the"]),
        ("always", ["\u2581the", "</s>", "\u2581the"]),
        ("first", ["\u2581the", "</s>", "the"]),
        ("never", ["the", "</s>", "the"]),
    ],
)
def test_after_a_control_token_the_prefix_is_as_the_family_has_it(
    both: dict[str, tuple[Tokenizer, Backend]], kind: str, pieces: list[str]
) -> None:
    tokenizer, backend = both[kind]
    ids = tokenizer.encode("the</s>the")
    assert ids == backend.encode("the</s>the").ids
    assert "".join(backend.id_to_token(i) for i in ids) == "".join(pieces)
    assert tokenizer.decode(ids) == "thethe"


def test_control_tokens_swallow_the_white_space_that_the_file_says(tmp_path: Path) -> None:
    """Phi-3's do: a template's line break after one is no token."""
    backend = backend_of("never")
    backend.add_special_tokens(
        [AddedToken("<|user|>", rstrip=True, special=True), AddedToken("<|mask|>", lstrip=True, special=True)]
    )
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenizer_from_folder(tmp_path, frozenset(), {})
    for text in ("<|user|>\n the", "the \n<|mask|> the", "the <|user|> the", " <|mask|>", "<|user|>  <|mask|>  the"):
        assert tokenizer.encode(text) == backend.encode(text).ids
    many_spaces = " " * 200_000 + "the"  # would take minutes if each were tried as the beginning of " <|mask|>"
    assert tokenizer.decode(tokenizer.encode(many_spaces)) == many_spaces
