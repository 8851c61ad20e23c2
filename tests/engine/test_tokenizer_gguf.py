"""Vocabularies in GGUF metadata. SentencePiece's against what that library itself said (data/sentencepiece.json)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.detokenizer import Detokenizer
from engine.errors import ModelLoadError
from engine.tokenizer import GUARD, Tokenizer
from engine.tokenizer.gguf import tokenizer_from_gguf
from engine.tokenizer.pre_tokenisers import PRE_TOKENISERS
from engine.tokenizer.vocabulary import byte_alphabet

REFERENCE = json.loads((Path(__file__).parent / "data" / "sentencepiece.json").read_text("utf-8"))


def metadata(name: str, **changes: Any) -> dict[str, Any]:
    known = REFERENCE[name]
    values = {
        "model": "llama", "tokens": known["tokens"], "scores": known["scores"], "token_type": known["token_types"],
        "add_space_prefix": known["add_space_prefix"], "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    return {f"tokenizer.ggml.{key}": value for key, value in (values | changes).items()}


TOKENIZERS = {name: tokenizer_from_gguf(metadata(name)) for name in ("llama", "gemma")}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_ids_are_those_of_sentencepiece(name: str) -> None:
    found = {text: TOKENIZERS[name].encode(text, add_bos=False) for text, _ in REFERENCE[name]["texts"]}
    assert found == dict(REFERENCE[name]["texts"])


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters=GUARD + "\u2581<")))
def test_text_comes_back(name: str, text: str) -> None:
    assert TOKENIZERS[name].decode(TOKENIZERS[name].encode(text)) == text


def test_bos_comes_first_unless_the_file_says_otherwise() -> None:
    assert TOKENIZERS["llama"].encode("a")[0] == 1
    assert tokenizer_from_gguf(metadata("llama", add_bos_token=False)).encode("a")[0] != 1


def test_the_prefixed_space_is_no_text_and_others_are() -> None:
    llama, gemma = TOKENIZERS["llama"], TOKENIZERS["gemma"]
    ids = llama.encode("the</s>the the", add_bos=False)
    the = REFERENCE["llama"]["tokens"].index("\u2581the")
    assert ids == [the, 2, the, the]
    assert llama.decode(ids) == "thethe the"
    assert llama.decode([5, the]).endswith(" the")  # after other tokens a space is a space
    assert gemma.decode(gemma.encode(" the")) == " the"


@settings(max_examples=100, deadline=None)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters=GUARD + "\u2581<")), cut=st.integers(0, 40)
)
def test_an_answer_streamed_after_its_prompt_is_the_rest_of_the_text(text: str, cut: int) -> None:
    for tokenizer in TOKENIZERS.values():
        ids = tokenizer.encode(text)
        prompt, answer = ids[: cut + 1], ids[cut + 1 :]
        detokenizer = Detokenizer(tokenizer.bytes_after, prompt[-1])
        streamed = [detokenizer.push(i) for i in answer]
        before = b"".join(map(tokenizer.bytes_after, [None, *prompt], prompt))
        expected = text.encode()[len(before) :].decode(errors="ignore")  # the cut may go through a character
        assert "".join(streamed) == expected


def test_turn_markers_are_control_tokens_even_where_a_file_calls_them_user_defined() -> None:
    tokens = REFERENCE["gemma"]["tokens"]
    end = tokens.index("<end_of_turn>")
    types = [
        4 if token.endswith("_of_turn>") else kind
        for token, kind in zip(tokens, REFERENCE["gemma"]["token_types"], strict=True)
    ]
    tokenizer = tokenizer_from_gguf(metadata("gemma", token_type=types))
    assert end in tokenizer.eos_ids
    assert tokenizer.token_bytes(end) == b""
    assert end in tokenizer.encode("a<end_of_turn>")
    assert end not in tokenizer.encode(f"a<{GUARD}end_of_turn>")


def phi3(architecture: str = "phi3") -> Tokenizer:
    """The Llama vocabulary with some of Phi-3's control tokens."""
    known, added = REFERENCE["llama"], ["<|endoftext|>", "<|assistant|>", "<|end|>", "<|user|>"]
    values = metadata(
        "llama", tokens=known["tokens"] + added, scores=known["scores"] + [0.0] * 4,
        token_type=known["token_types"] + [3] * 4,
    )  # fmt: skip
    return tokenizer_from_gguf(values | {"general.architecture": architecture})


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("<|user|>\n the<|end|>\n<|assistant|>\n", "<|user|>the<|end|><|assistant|>"),
        ("<|user|> \t\n\nthe", "<|user|>the"),
        ("</s> the", "</s>the"),
    ],
)
def test_phi3_s_control_tokens_swallow_the_white_space_after_them(text: str, same_as: str) -> None:
    other = phi3("llama")
    assert phi3().encode(text) == phi3().encode(same_as) == other.encode(same_as)
    assert other.encode(text) != other.encode(same_as)


@pytest.mark.parametrize("text", ["the \n<|user|>", "<s>\nthe", "<|endoftext|> the", "<unk> the"])
def test_but_not_what_stands_before_them_and_three_swallow_nothing(text: str) -> None:
    """As in the model's tokenizer.json and in llama.cpp."""
    assert phi3().encode(text) == phi3("llama").encode(text)


def test_a_file_that_does_not_say_how_to_cut_words_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    byte_level("qwen2")
    assert not caplog.records
    byte_level("default")
    assert "tokenizer.ggml.pre" in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": [1.0]}, "scores is missing or not one a token"),
        ({"tokens": []}, "tokens is missing"),
        ({"tokens": [1, 2]}, "no list of texts"),
        ({"token_type": "x"}, "token_type has 1 entries"),
        ({"model": "bert"}, "'bert' .* safetensors folder"),
        ({"model": "gpt2", "pre": "qwen2"}, "merges is missing"),
        ({"model": "gpt2", "pre": "of-tomorrow"}, "pre-tokeniser 'of-tomorrow'.* 'qwen2'.* are supported"),
        ({"model": "gpt2", "pre": 5}, "pre-tokeniser 5"),
    ],
)
def test_unusable_vocabularies_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        tokenizer_from_gguf(metadata("llama", **changes))


TEXT = "It'S 12345 helloWorld ($x)!\n\n  \u6f22\u5b57"
WORDS = {  # of TEXT, by each rule's published pattern
    "default": ["It", "'", "S", " ", "123", "45", " helloWorld", " ", "($", "x", ")!", "\n\n ", " \u6f22\u5b57"],
    "gpt-2": ["It", "'", "S", " 12345", " helloWorld", " ($", "x", ")!", "\n\n ", " \u6f22\u5b57"],
    "smollm": ["It", "'", "S", " ", *"12345", " helloWorld", " ($", "x", ")!", "\n\n ", " \u6f22\u5b57"],
    "llama-bpe": ["It", "'S", " ", "123", "45", " helloWorld", " ($", "x", ")!\n\n", " ", " \u6f22\u5b57"],
    "qwen2": ["It", "'S", " ", *"12345", " helloWorld", " ($", "x", ")!\n\n", " ", " \u6f22\u5b57"],
    "tekken": ["It", "'S", " ", *"12345", " hello", "World", " ($", "x", ")!\n\n", " ", " \u6f22\u5b57"],
    "gpt-4o": ["It'S", " ", "123", "45", " hello", "World", " ($", "x", ")!\n\n", " ", " \u6f22\u5b57"],
    "deepseek-v3": ["It", "'S", " ", "123", "45", " helloWorld", " ($", "x", ")!\n\n", "  ", "\u6f22\u5b57"],
}


def byte_level(pre: str, words: Sequence[str] = ("ab",)) -> Tokenizer:
    """A vocabulary of all bytes, all beginnings of `words`, and a BOS."""
    alphabet = byte_alphabet()
    spelt = ["".join(alphabet[byte] for byte in word.encode()) for word in words]
    beginnings = dict.fromkeys(word[:size] for word in spelt for size in range(2, len(word) + 1))
    tokens = ["<s>", *alphabet.values(), *beginnings]
    values = {
        "model": "gpt2", "pre": pre, "tokens": tokens, "token_type": [3, *[1] * (len(tokens) - 1)], "bos_token_id": 0,
        "merges": [(token[:-1], token[-1]) for token in beginnings],
    }  # fmt: skip
    return tokenizer_from_gguf({f"tokenizer.ggml.{key}": value for key, value in values.items()})


@pytest.mark.parametrize("pre", WORDS)
def test_text_is_cut_into_the_rule_s_words(pre: str) -> None:
    """With every word a token of its own, a text's tokens are its words."""
    tokenizer = byte_level(pre, WORDS[pre])
    ids = tokenizer.encode(TEXT, add_bos=False)
    assert [tokenizer.token_bytes(i).decode() for i in ids] == WORDS[pre]


@pytest.mark.parametrize("pre", sorted(PRE_TOKENISERS))
def test_every_rule_keeps_all_of_a_text(pre: str) -> None:
    text = "It's 1234567 AbCd\u00e9 \u6f22\u5b57\u304b\u306a!\n\n  don't\tx\u0301 \U0001f642 <|x|> "
    tokenizer = byte_level(pre)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert (tokenizer.encode("a")[0] == 0) == PRE_TOKENISERS[pre].add_bos
