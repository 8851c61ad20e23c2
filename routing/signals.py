"""Cheap facts about a prompt's text: lengths, shares, marks of code and maths, cue words. Knows no heads and no tiers.

Whatever a client sends, empty text, megabytes or lone surrogates, gives numbers and never an exception.
"""

import math
import re

import numpy as np
import numpy.typing as npt

from routing.cues import TASKS
from routing.cues import read as read_cues

Features = npt.NDArray[np.float32]  # (len(FEATURES),)

END_CHARS = 480  # of a long prompt only its two ends are read: the instruction stands at one of them
LEAD_CHARS = 240  # how much of each end counts as the instruction itself

_SHAPE = (
    "log_chars",
    "log_words",
    "log_lines",
    "word_length",
    "digit_share",
    "upper_share",
    "foreign_share",
    "code_marks",
    "maths_marks",
    "questions",
    "opens_with_question_word",
    "choices",
    "numbers",
    "quotes",
    "passage",
)
GUESSES: tuple[str, ...] = tuple(f"guess_{task}" for task in TASKS)  # 1 for the task that the cues speak for
FOREIGN_SHARE = _SHAPE.index("foreign_share")
FEATURES: tuple[str, ...] = _SHAPE + tuple(f"cue_{task}" for task in TASKS) + GUESSES

_WORD = re.compile(r"[^\W\d_]+")
_LAST_LATIN = "\u024f"  # where the block Latin Extended-B ends
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_CODE_LITERALS = (
    "```",
    "=>",
    "->",
    "()",
    "==",
    "!=",
    "&&",
    "||",
    "::",
    "\n    ",
    "\n\t",
    "#include",
    "Traceback",
    "SELECT ",
)
# Patterns that begin with one set of characters are searched several times faster than a choice of many beginnings.
_CODE = (
    re.compile(r"[;{}]\s*\n"),
    re.compile(r"\.\w+\("),
    re.compile(r"</?[a-z]\w*>"),
    re.compile(r"(?:import|const|let|void|int|fn|func|def) \w+ ?[(={;:\n]"),
)
_MATHS = (
    re.compile(r"[\\=^√∫∑π≤≥≠×÷°]"),
    re.compile(r"\d ?[-+*/<>%]"),
    re.compile(r"\$[\d\\a-z]"),
)
_CHOICES = re.compile(r"\n\(?[A-Ea-e][.)]\s")
_QUESTION_WORDS = frozenset(
    (
        *("who", "what", "when", "where", "why", "how", "which", "whose", "whom", "is", "are", "was", "were"),
        *("do", "does", "did", "can", "could", "should", "would", "will"),
    )
)


def extract(text: str) -> Features:
    """The features of one prompt, float32 of shape (len(FEATURES),), in the order of FEATURES."""
    read = text if len(text) <= 2 * END_CHARS else f"{text[:END_CHARS]}\n{text[-END_CHARS:]}"
    lead = read if len(read) <= 2 * LEAD_CHARS else f"{read[:LEAD_CHARS]}\n{read[-LEAD_CHARS:]}"
    size = max(len(read), 1)
    words = _WORD.findall(read)
    num_words = len(words)
    cues, guessed = read_cues(lead)
    values = [
        math.log1p(len(text)),
        math.log1p(num_words * len(text) / size),
        math.log1p(read.count("\n")),
        sum(map(len, words)) / max(num_words, 1),
        sum(map(read.count, "0123456789")) / size,
        sum(1 for word in words if word[0].isupper()) / max(num_words, 1),
        0.0 if read.isascii() else _foreign_share("".join(words)),
        math.log1p(sum(map(read.count, _CODE_LITERALS)) + _occurrences(_CODE, read)),
        math.log1p(_occurrences(_MATHS, read)),
        math.log1p(read.count("?")),
        float(bool(words) and words[0].lower() in _QUESTION_WORDS),
        math.log1p(len(_CHOICES.findall(read))),
        math.log1p(len(_NUMBER.findall(read))),
        math.log1p(read.count('"') + read.count("“")),
        float(len(text) > 2 * LEAD_CHARS),
        *cues,
        *(float(index == guessed) for index in range(len(TASKS))),
    ]
    return np.array(values, np.float32)


def _foreign_share(letters: str) -> float:
    """The share of letters of other scripts than the Latin one, in which the training data is written."""
    return sum(letter > _LAST_LATIN for letter in letters) / max(len(letters), 1)


def _occurrences(patterns: tuple[re.Pattern[str], ...], text: str) -> int:
    return sum(len(pattern.findall(text)) for pattern in patterns)


def guessed_task(features: Features) -> str | None:
    """The task that the cues speak for; None where there are none."""
    marked = np.flatnonzero(features[-len(GUESSES) :])
    return TASKS[int(marked[0])] if len(marked) else None


def named(features: Features) -> dict[str, float]:
    """The features by name, zeros left out, rounded: for a record that people read."""
    return {name: round(value, 4) for name, value in zip(FEATURES, features.tolist(), strict=True) if value}
