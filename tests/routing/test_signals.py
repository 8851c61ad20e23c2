"""Features of a text: right where it matters, and never an exception."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.cues import CUES, TASKS, guess, read
from routing.signals import END_CHARS, FEATURES, extract, guessed_task, named


def feature(text: str, name: str) -> float:
    return float(extract(text)[FEATURES.index(name)])


# surrogates included: JSON may hold lone ones
@given(st.text(st.characters(), max_size=400))
def test_any_text_gives_finite_numbers(text: str) -> None:
    features = extract(text)
    assert features.shape == (len(FEATURES),)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()


@pytest.mark.parametrize("text", ["", " ", "\ud800", "\x00" * 50, "a" * 200_000, "```" * 70_000, "\n" * 200_000])
def test_odd_texts_give_finite_numbers(text: str) -> None:
    assert np.isfinite(extract(text)).all()


def test_code_maths_and_choices_leave_marks() -> None:
    assert feature("def add(a, b):\n    return a + b", "code_marks") > 0
    assert feature("Please write to me about the sea.", "code_marks") == 0
    assert feature(r"Solve x^2 - 3 = 0 for \frac{1}{2}", "maths_marks") > feature("Solve this quarrel", "maths_marks")
    assert feature("Which is it?\nA. one\nB. two", "choices") == pytest.approx(math.log1p(2))
    assert feature("Who was it?", "opens_with_question_word") == 1
    assert feature("It was he.", "opens_with_question_word") == 0


def test_shares_lie_between_zero_and_one() -> None:
    assert feature("12 34", "digit_share") == pytest.approx(0.8)
    assert feature("Привет", "foreign_share") == pytest.approx(1.0)
    assert feature("naïve Straße", "foreign_share") == 0
    assert feature("ONE two", "upper_share") == pytest.approx(0.5)


def test_a_long_text_is_read_at_both_ends() -> None:
    filler = "lorem ipsum dolor " * 1000
    at_start, at_end = f"Summarize this: {filler}", f"{filler} Summarize this."
    buried = f"{filler} Summarize this. {filler}"
    assert feature(at_start, "cue_summarization") == feature(at_end, "cue_summarization") > 0
    assert feature(buried, "cue_summarization") == 0
    assert len(buried) > 2 * END_CHARS


def test_length_counts_the_whole_text() -> None:
    assert feature("a" * 100_000, "log_chars") == pytest.approx(math.log1p(100_000))


def test_named_features_are_those_that_are_not_zero() -> None:
    features = named(extract("Calculate 3 + 4"))
    assert features["cue_maths"] == 2  # a word and a mark
    assert "cue_chat" not in features
    assert all(features.values())


def test_every_cue_can_be_found() -> None:
    for index, (task, phrases) in enumerate(CUES.items()):
        for phrase in phrases:
            assert read(f"{phrase} 7")[0][index] >= 1, (task, phrase)


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("Write a Python function that sorts", "code"),
        ("TL;DR please", "summarization"),
        ("ZeroDivisionError: division by zero", "code"),
        ("SELECT id FROM orders takes two minutes", "code"),
        ("what is wrong in main.rs", "code"),
        ("if (a != b) stop", "code"),
        ("What is 12 * 13?", "maths"),
        (r"\frac{1}{2} of what is 3", "maths"),
        ("How many apples are left of 12?", "reasoning"),
        ("How many apples remain when 3 of 12 are eaten?", "maths"),
        ("If all cats are mammals and all mammals are animals, are cats animals?", "reasoning"),
        ("Write a poem about recursion in Python", "creative_writing"),
    ],
)
def test_cues_guess_the_plain_cases(text: str, task: str) -> None:
    assert guess(text) == task


@pytest.mark.parametrize("text", ["zzz", "How many people live in Tokyo?", "Could you please do it", ""])
def test_what_says_nothing_of_the_task_gives_no_guess(text: str) -> None:
    assert guess(text) is None


def test_the_guess_can_be_read_off_the_features() -> None:
    assert guessed_task(extract("Write unit tests for it")) == "code"
    assert guessed_task(extract("zzz")) is None
    assert set(TASKS) == set(CUES)
