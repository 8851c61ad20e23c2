"""Tokens and their log probabilities as OpenAI writes them."""

import math

from gateway.wire.logprobs import TextLogprobs, TokenLogprob, chat_logprobs

A, B = TokenLogprob(b"a", -0.25), TokenLogprob(b"b", -1.5)
HALF = TokenLogprob(b"\xf0\x9f", -0.5)
END = TokenLogprob(b"", -3.0, name="<|im_end|>")


def test_a_chats_entries() -> None:
    content = chat_logprobs([TokenLogprob(b"a", -0.25, top=(A, HALF, END))])["content"]
    assert content[0]["token"] == "a"
    assert content[0]["bytes"] == [97]
    top = content[0]["top_logprobs"]
    assert [entry["token"] for entry in top] == ["a", "bytes:\\xf0\\x9f", "<|im_end|>"]
    assert [entry["bytes"] for entry in top] == [[97], [0xF0, 0x9F], None]


def test_what_is_impossible_has_a_number_all_the_same() -> None:
    assert chat_logprobs([TokenLogprob(b"a", -math.inf)])["content"][0]["logprob"] == -9999.0


def test_offsets_count_whole_characters() -> None:
    logprobs = TextLogprobs()
    smile = "🙂".encode()
    tokens = [TokenLogprob(b"ab", -1.0), TokenLogprob(smile[:2], -1.0), TokenLogprob(smile[2:], -1.0)]
    assert logprobs.take(tokens)["text_offset"] == [0, 2, 2]
    assert logprobs.take([A])["text_offset"] == [3]


def test_control_tokens_take_no_place() -> None:
    assert TextLogprobs().take([END, A])["text_offset"] == [0, 0]


def test_the_chosen_token_is_among_the_most_likely() -> None:
    told = TextLogprobs().take([TokenLogprob(b"c", -7.0, top=(A, B)), TokenLogprob(b"a", -0.25, top=(A,)), A])
    assert told["top_logprobs"] == [{"a": -0.25, "b": -1.5, "c": -7.0}, {"a": -0.25}, {}]


def test_nothing_is_known_of_a_first_token() -> None:
    told = TextLogprobs().take([TokenLogprob(b"a", None), B])
    assert told["token_logprobs"] == [None, -1.5]
    assert told["top_logprobs"] == [None, {}]
