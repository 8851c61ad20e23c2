"""What turns a question round: negations, opposites, relations and restrictions that only one of the two has."""

from itertools import pairwise

from semcache.lexicon import (
    ADDRESSEES,
    CLASHING_PREPOSITIONS,
    FUNCTION_WORDS,
    NEGATING_PREFIXES,
    NEGATIONS,
    OBLIGATIONS,
    OPPOSITES,
    QUESTION_WORDS,
    RELATIONS,
    RESTRICTIONS,
    SPEECH_ACTS,
)
from semcache.text import Text

_opposites: dict[str, set[str]] = {}
for _line in OPPOSITES.strip().splitlines():
    _left, _right = (side.split() for side in _line.split("|"))
    for _word in _left:
        _opposites.setdefault(_word, set()).update(_right)
    for _word in _right:
        _opposites.setdefault(_word, set()).update(_left)

_clashing = {frozenset(line.split()) for line in CLASHING_PREPOSITIONS.strip().splitlines()}
_prepositions = frozenset().union(*_clashing)
_NONE: frozenset[str] = frozenset()
_PERMISSIONS = frozenset(("can", "could", "may", "might"))


def differs_in_negation(a: Text, b: Text) -> bool:
    """One denies what the other does not: by a word, by a prefix (refundable, non-refundable) or by -less."""
    if _num_negations(a) != _num_negations(b):
        return True
    only_here, only_there = a.word_set - b.word_set, b.word_set - a.word_set
    return _negates_by_affix(only_here, only_there) or _negates_by_affix(only_there, only_here)


def differs_by_opposites(a: Text, b: Text) -> bool:
    """One has "on" where the other has "off", must I where the other has may I, ask where the other has tell."""
    only_here, only_there = a.word_set - b.word_set, b.word_set - a.word_set
    if any(not _opposites.get(word, _NONE).isdisjoint(only_there) for word in only_here):
        return True
    if (_is_obliged(a) and _is_permitted(b)) or (_is_obliged(b) and _is_permitted(a)):
        return True
    ours, theirs = _speech_acts(a), _speech_acts(b)
    return bool(ours) and bool(theirs) and ours.isdisjoint(theirs)


def differs_in_restriction(a: Text, b: Text) -> bool:
    """One asks for a day, a format or an exception that the other does not mention."""
    return any(
        word + "s" not in a.word_set | b.word_set  # on Monday, on Mondays
        for word in (a.word_set ^ b.word_set) & RESTRICTIONS
    )


def differs_in_relation(a: Text, b: Text) -> bool:
    """One has before, after, against or until where the other has not; or writes to where the other writes about."""
    if (a.word_set ^ b.word_set) & RELATIONS:
        return True
    ours, theirs = _prepositions_of(a), _prepositions_of(b)
    return any(frozenset((ours[word], theirs[word])) in _clashing for word in ours.keys() & theirs.keys())


def _num_negations(text: Text) -> int:
    return sum(word in NEGATIONS for word in text.words)


def _negates_by_affix(some: frozenset[str], others: frozenset[str]) -> bool:
    for word in some:
        for prefix in NEGATING_PREFIXES:
            if word.startswith(prefix) and len(word) - len(prefix) >= 4 and word[len(prefix) :] in others:
                return True
        if word.endswith("less") and any(other.startswith(word[:-4]) for other in others):
            return True
    return False


def _is_obliged(text: Text) -> bool:
    """must I, do I need, do I have to: asked for at the head of the question."""
    head = text.words[:5]
    return "must" in head[:2] or any(
        (one, two) in OBLIGATIONS and head[0] in ("do", "does", "will", "would") for one, two in pairwise(head)
    )


def _is_permitted(text: Text) -> bool:
    return bool(text.words) and text.words[0] in _PERMISSIONS


def _speech_acts(text: Text) -> set[str]:
    """Who is asked, told or given something, when it is not the reader: ask my boss, but not tell me."""
    return {
        SPEECH_ACTS[word]
        for word, following in pairwise(text.words)
        if word in SPEECH_ACTS and following not in ADDRESSEES
    }


def _prepositions_of(text: Text) -> dict[str, str]:
    """Word of substance -> the preposition that stands before it: {"manager": "to"}."""
    found: dict[str, str] = {}
    preposition = None
    for word in text.words:
        if word in _prepositions:
            preposition = word
        elif word in QUESTION_WORDS:
            preposition = None
        elif word not in FUNCTION_WORDS:
            if preposition is not None and word not in found:
                found[word] = preposition
            preposition = None
    return found
