"""Arrays of texts come out as they were written, or are refused as what they are."""

import mmap
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.loader.gguf_file import GGUFFile
from engine.loader.gguf_texts import TextArray


def stored(*texts: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(text)) + text for text in texts)


def mapped(content: bytes) -> mmap.mmap:
    data = mmap.mmap(-1, len(content))
    data[:] = content
    return data


def found(texts: Iterable[bytes]) -> TextArray:
    texts = list(texts)
    content = stored(*texts)
    array = TextArray.find(mapped(b"before" + content + b"after"), 6, len(texts))
    assert array.end == 6 + len(content)
    return array


@given(st.lists(st.text()))
def test_any_texts(texts: list[str]) -> None:
    assert found(text.encode() for text in texts).read() == texts


@pytest.mark.parametrize("length", [0, 255, 256, 65535, 65536, 70001])
def test_any_length(length: int) -> None:
    assert found([b"a", b"b" * length, b"c"]).read() == ["a", "b" * length, "c"]


@given(st.lists(st.tuples(*[st.text().map(lambda text: text.replace(" ", ""))] * 2)))
def test_any_pairs(pairs: list[tuple[str, str]]) -> None:
    assert found(" ".join(pair).encode() for pair in pairs).read_pairs() == pairs


@pytest.mark.parametrize("texts", [["ab"], ["a b c"], ["a b c", "d"], ["a", "b c d"], ["a b", "", "c  d"]])
def test_what_is_no_pair_is_an_error(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="not two with a space between"):
        found(text.encode() for text in texts).read_pairs()


@pytest.mark.parametrize("text", [b"\xff", b"\xed\xa0\x80", "\u00e9".encode()[:1]])
def test_what_is_no_text_is_an_error_when_it_is_read(text: bytes) -> None:
    with pytest.raises(ValueError, match="UTF-8"):
        found([b"good", text]).read()


@pytest.mark.parametrize("length", [6, 2**31, 2**63, 2**64 - 1])
@pytest.mark.parametrize("count", [1, 2])
def test_a_length_that_lies_is_an_error_when_it_is_found(length: int, count: int) -> None:
    with pytest.raises((struct.error, OverflowError)):
        TextArray.find(mapped(struct.pack("<Q", length) + b"five!"), 0, count)


def test_all_texts_of_a_file(smollm2_path: Path) -> None:
    file = GGUFFile(smollm2_path)
    whole = file.whole_metadata()
    assert list(whole) == list(file.metadata)
    tokens, merges = whole["tokenizer.ggml.tokens"], whole["tokenizer.ggml.merges"]
    assert (len(tokens), len(merges)) == (49152, 48900)
    assert (tokens[:2], merges[0], whole["general.languages"]) == (
        ["<|endoftext|>", "<|im_start|>"],
        ("\u0120", "t"),
        ["en"],
    )
