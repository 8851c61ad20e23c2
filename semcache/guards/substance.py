"""The words that carry the subject: which of them have no counterpart in the other question, and what that means."""

from itertools import pairwise

from semcache.lexicon import FUNCTION_WORDS, GENERIC_NOUNS, QUESTION_WORDS, SYNONYMS
from semcache.text import Text, stem
from semcache.word_forms import CONFUSABLE

MAX_ADDED_WORDS = 1  # content words that only one of the questions has, beside those that are matched
MAX_UNMATCHED_WORDS = 8  # with more than these on both sides nobody looks for typos and synonyms among them
MAX_TYPO_LETTERS = 24  # longer strings are no words of a language

_synonyms: dict[str, set[int]] = {}
for _number, _line in enumerate(SYNONYMS.strip().splitlines()):
    for _word in _line.split():
        _synonyms.setdefault(stem(_word), set()).add(_number)

_confusable = {frozenset(map(stem, _line.split())) for _line in CONFUSABLE.strip().splitlines()}


def are_far_apart(a: Text, b: Text) -> bool:
    """Each has more words of its own than a paraphrase would replace: they differ, and nothing more need be compared.

    This bounds the cost of a pair: the guards' comparisons of each word with each see few words after it.
    """
    return (
        len(a.subject_set - b.subject_set) > MAX_UNMATCHED_WORDS
        and len(b.subject_set - a.subject_set) > MAX_UNMATCHED_WORDS
    )


def differs_in_substance(a: Text, b: Text) -> bool:
    """A word of substance stands where the other has another one that is no inflection, typo or known synonym of it."""
    only_here, only_there = _unmatched(a, b)
    return bool(only_here) and bool(only_there)


def differs_by_addition(a: Text, b: Text) -> bool:
    """One says clearly more than the other, or qualifies what the other does not: an advisor, an active advisor."""
    only_here, only_there = _unmatched(a, b)
    if len(only_here) + len(only_there) > MAX_ADDED_WORDS:
        return True
    return _qualifies(a, only_here) or _qualifies(b, only_there)


def _unmatched(a: Text, b: Text) -> tuple[list[str], list[str]]:
    """The words of substance of each question that have no counterpart in the other."""
    only_here = [word for word in dict.fromkeys(a.subject) if word not in b.subject_set]
    only_there = [word for word in dict.fromkeys(b.subject) if word not in a.subject_set]
    if min(len(only_here), len(only_there)) > MAX_UNMATCHED_WORDS:
        return only_here, only_there
    for word in list(only_here):
        twin = next((other for other in only_there if _same_word(word, other)), None)
        if twin is not None:
            only_here.remove(word)
            only_there.remove(twin)
    if not only_here and not only_there:
        return only_here, only_there
    compounds = [*_compounds(only_here, b), *_compounds(only_there, a)]
    return _without_parts(only_here, compounds), _without_parts(only_there, compounds)


def _compounds(added: list[str], other: Text) -> list[str]:
    """Added words that the other text writes in two: login and log in, wifi and wi-fi."""
    joined = "".join(other.words)
    return [
        word for word in added if len(word) >= 4 and word in joined and not any(word in part for part in other.words)
    ]


def _without_parts(words: list[str], compounds: list[str]) -> list[str]:
    return [word for word in words if not any(word in compound for compound in compounds)]


def _qualifies(text: Text, added: list[str]) -> bool:
    """Whether an added word stands right before another word of substance, or makes another thing of the one before.

    An active advisor is no advisor, and an egg white no egg; but a Netflix account is what Netflix means there.
    """
    if not added:
        return False
    before = ""
    for word, following in pairwise([*text.words, ""]):
        if stem(word) in added:
            if following and following not in FUNCTION_WORDS:
                return True
            names_nothing = word in GENERIC_NOUNS or (len(word) > 5 and word.endswith(("ing", "ed", "ly")))
            if not names_nothing and _is_head(before) and following not in QUESTION_WORDS:
                return True
        before = word
    return False


def _is_head(before: str) -> bool:
    """Whether the word before can be part of the thing named: a word of substance, or the letter of an S24."""
    return (before != "" and before not in FUNCTION_WORDS) or (len(before) == 1 and before not in "ai")


def _same_word(one: str, other: str) -> bool:
    if frozenset((one, other)) in _confusable:
        return False
    if _synonyms.get(one, set()) & _synonyms.get(other, set()):
        return True
    return _is_typo(one, other)


def _is_typo(one: str, other: str) -> bool:
    """Two neighbouring letters swapped, or one letter too many, in a word of five letters or more."""
    if abs(len(one) - len(other)) > 1 or not 5 <= min(len(one), len(other)) <= MAX_TYPO_LETTERS:
        return False
    if len(one) == len(other):
        differing = [at for at in range(len(one)) if one[at] != other[at]]
        return len(differing) == 2 and differing[1] == differing[0] + 1 and sorted(one) == sorted(other)
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    at = next((at for at, letter in enumerate(shorter) if longer[at] != letter), len(shorter))
    return longer[at + 1 :] == shorter[at:]
