"""Cheap vetoes: what two questions must have in common, however near their embeddings are. Pure functions of two texts.

An embedding hardly sees a changed number, a negation or a swap; these comparisons of words do. They are one-sided by
design: a veto costs a hit, a missing veto costs a wrong answer. They know English; see docs/semcache.md for limits.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from semcache.lexicon import (
    DIRECTED,
    FUNCTION_WORDS,
    JOINERS,
    NEGATING_PREFIXES,
    NEGATIONS,
    OPPOSITES,
    RESTRICTIONS,
    SYMMETRIC,
    SYNONYMS,
    UNITS,
)
from semcache.text import Text, stem

AT_NUMBER = re.compile(r"\d\s?([^\W\d_]+|%)")
CURRENCIES = re.compile(r"[$€£¥₹]")
MAX_ADDED_WORDS = 1  # content words that only one of the questions has, beside those that are matched

_opposites: dict[str, set[str]] = {}
for _line in OPPOSITES.strip().splitlines():
    _left, _right = (side.split() for side in _line.split("|"))
    for _word in _left:
        _opposites.setdefault(_word, set()).update(_right)
    for _word in _right:
        _opposites.setdefault(_word, set()).update(_left)

_units = {word: line.split()[0] for line in UNITS.strip().splitlines() for word in line.split()}

_synonyms: dict[str, set[int]] = {}
for _number, _line in enumerate(SYNONYMS.strip().splitlines()):
    for _word in _line.split():
        _synonyms.setdefault(stem(_word), set()).add(_number)

_FIRST_PERSON = frozenset(("my", "mine", "our", "ours"))
_SECOND_PERSON = frozenset(("your", "yours"))
_PAST = frozenset(("was", "were", "did", "had"))
_PRESENT = frozenset(("is", "are", "am", "does", "do"))
_GENDERED = {"he": "he", "him": "he", "his": "he", "she": "she", "her": "she", "hers": "she"}
_ASKS = {"who": "who", "whom": "who", "when": "when", "where": "where", "why": "why", "how": "how"}
_MEASURES = frozenset(("many", "much", "long", "old", "far", "often", "big", "tall", "fast", "high", "deep"))


def veto(asked: Text, stored: Text) -> str | None:
    """The first guard that tells the two questions apart, as "guard:name"; None if none does."""
    if asked.text == stored.text:
        return None
    for name, differs in GUARDS:
        if differs(asked, stored):
            return f"guard:{name}"
    return None


def differs_in_numbers(a: Text, b: Text) -> bool:
    """12 is not 13, and 5 to 10 is not 10 to 5."""
    return a.numbers != b.numbers


def differs_in_units(a: Text, b: Text) -> bool:
    """5 km is not 5 miles; a unit without a number counts too, a unit that only one side names does not."""
    ours, theirs = set(_unit_words(a)), set(_unit_words(b))
    return bool(ours - theirs) and bool(theirs - ours)


def differs_in_code(a: Text, b: Text) -> bool:
    """Identifiers, paths, flags, addresses and operators have no synonyms."""
    return a.identifiers != b.identifiers


def differs_in_negation(a: Text, b: Text) -> bool:
    """One denies what the other does not: by a word, by a prefix (refundable, non-refundable) or by -less."""
    if _num_negations(a) != _num_negations(b):
        return True
    return _negates_by_affix(a.word_set, b.word_set) or _negates_by_affix(b.word_set, a.word_set)


def differs_by_opposites(a: Text, b: Text) -> bool:
    """One has "on" where the other has "off"."""
    only_here, only_there = a.word_set - b.word_set, b.word_set - a.word_set
    return any(not _opposites.get(word, _NONE).isdisjoint(only_there) for word in only_here)


def differs_in_names(a: Text, b: Text) -> bool:
    """A name that the other question does not have in any spelling of its case."""
    return not a.names <= _stems(b) or not b.names <= _stems(a)


def differs_in_question(a: Text, b: Text) -> bool:
    """who, when, where, why, how and how many are different questions; what and which may stand for any of them."""
    ours, theirs = _asks(a), _asks(b)
    return bool(ours) and bool(theirs) and not ours & theirs


def differs_in_person(a: Text, b: Text) -> bool:
    """My balance is not your balance, and what he does is not what she does."""
    if _pronouns(a) != _pronouns(b):
        return True
    if a.word_set & _FIRST_PERSON and b.word_set & _SECOND_PERSON:
        return not (b.word_set & _FIRST_PERSON or a.word_set & _SECOND_PERSON or "you" in b.word_set)
    if b.word_set & _FIRST_PERSON and a.word_set & _SECOND_PERSON:
        return differs_in_person(b, a)
    return False


def differs_in_tense(a: Text, b: Text) -> bool:
    """What was is not what is."""
    if _used_to(a) != _used_to(b):
        return True
    past_a, past_b = bool(a.word_set & _PAST), bool(b.word_set & _PAST)
    if past_a == past_b:
        return False
    return bool((b if past_a else a).word_set & _PRESENT)


def differs_in_restriction(a: Text, b: Text) -> bool:
    """One asks for a day, a format or an exception that the other does not mention."""
    return bool((a.word_set ^ b.word_set) & RESTRICTIONS)


def differs_in_order(a: Text, b: Text) -> bool:
    """The same words, but what points where has changed: Word to PDF, PDF to Word; she calls him, he calls her."""
    shared = a.word_set & b.word_set
    if shared & SYMMETRIC:
        return False
    ours, theirs = _directions(a), _directions(b)
    for marker in ours.keys() & theirs.keys():
        here, there = ours[marker] - theirs[marker], theirs[marker] - ours[marker]
        if here and there and here <= shared and there <= shared:
            return True
    stays = {stem(word) for marker in ours if ours[marker] == theirs.get(marker) for word in ours[marker]}
    inverted = _is_inverted(_roles(a), _roles(b), stays)
    if _agent(a) != _agent(b) and (_agent(a) or _agent(b)) in shared:
        return not inverted  # did Ann call Bob, was Ann called by Bob
    if not inverted or Counter(_roles(a)) != Counter(_roles(b)):
        return False
    return not _is_moved_phrase(a, b)


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


GUARDS: tuple[tuple[str, Callable[[Text, Text], bool]], ...] = (
    ("number", differs_in_numbers),
    ("unit", differs_in_units),
    ("negation", differs_in_negation),
    ("antonym", differs_by_opposites),
    ("code", differs_in_code),
    ("entity", differs_in_names),
    ("question", differs_in_question),
    ("person", differs_in_person),
    ("tense", differs_in_tense),
    ("restriction", differs_in_restriction),
    ("order", differs_in_order),
    ("substitution", differs_in_substance),
    ("addition", differs_by_addition),
)

_NONE: frozenset[str] = frozenset()


def _unit_words(text: Text) -> Iterator[str]:
    """Units that are words of three letters or more, or that stand at a number (16GB, 5 km); and currency signs."""
    for word in text.words:
        if len(word) >= 3 and word in _units:
            yield _units[word]
    for match in AT_NUMBER.finditer(text.text):
        unit = _units.get(match.group(1).lower())
        if unit is not None:
            yield unit
    for sign in CURRENCIES.findall(text.text):
        yield _units[sign]


def _num_negations(text: Text) -> int:
    return sum(word in NEGATIONS for word in text.words)


def _negates_by_affix(some: frozenset[str], others: frozenset[str]) -> bool:
    for word in some - others:
        for prefix in NEGATING_PREFIXES:
            if word.startswith(prefix) and len(word) - len(prefix) >= 4 and word[len(prefix) :] in others - some:
                return True
        if word.endswith("less") and any(other.startswith(word[:-4]) for other in others - some):
            return True
    return False


def _stems(text: Text) -> frozenset[str]:
    return frozenset(map(stem, text.words))


def _asks(text: Text) -> set[str]:
    asks: set[str] = set()
    for word, following in pairwise([*text.words, ""]):
        kind = _ASKS.get(word)
        if kind == "how" and following in _MEASURES:
            kind = f"how {following}"
        if kind is not None:
            asks.add(kind)
    return asks


def _directions(text: Text) -> dict[str, set[str]]:
    """Marker -> the words of substance that stand right after it: {"to": {"pdf"}}."""
    directions: dict[str, set[str]] = {}
    for at, word in enumerate(text.words):
        if word in DIRECTED:
            target = next((w for w in text.words[at + 1 : at + 4] if w not in FUNCTION_WORDS), None)
            if target is not None:
                directions.setdefault(word, set()).add(target)
    return directions


def _agent(text: Text) -> str | None:
    """Who does it in a passive: the word of substance after "by"."""
    if "by" not in text.word_set:
        return None
    after = text.words[text.words.index("by") + 1 :]
    return next((word for word in after if word not in FUNCTION_WORDS), None)


def _used_to(text: Text) -> bool:
    return any(word in ("use", "used") and after == "to" for word, after in pairwise(text.words))


def _pronouns(text: Text) -> list[str]:
    return [_GENDERED[word] for word in text.words if word in _GENDERED]


def _roles(text: Text) -> list[str]:
    """Words of substance in order, but the two next to an "and" or "or" in alphabetical order."""
    roles: list[str] = []
    joined = False
    for word in text.words:
        if word in JOINERS:
            joined = True
        elif word not in FUNCTION_WORDS:
            roles.append(stem(word))
            if joined and len(roles) > 1:
                roles[-2:] = sorted(roles[-2:])
            joined = False
    return roles


def _is_inverted(ours: list[str], theirs: list[str], stays: set[str]) -> bool:
    """Whether two words that each question has once stand in another order, those that `stays` explains aside."""
    once = [word for word in ours if word not in stays and ours.count(word) == 1 and theirs.count(word) == 1]
    order = [theirs.index(word) for word in once]
    return order != sorted(order)


def _is_moved_phrase(a: Text, b: Text) -> bool:
    """The capital of France, France's capital: a genitive, or a particle that moved behind its object."""
    return ("of" in a.word_set) != ("of" in b.word_set)


def _unmatched(a: Text, b: Text) -> tuple[list[str], list[str]]:
    """The words of substance of each question that have no counterpart in the other."""
    only_here = [word for word in dict.fromkeys(a.subject) if word not in b.subject]
    only_there = [word for word in dict.fromkeys(b.subject) if word not in a.subject]
    for word in list(only_here):
        twin = next((other for other in only_there if _same_word(word, other)), None)
        if twin is not None:
            only_here.remove(word)
            only_there.remove(twin)
    joined_a, joined_b = "".join(a.words), "".join(b.words)  # log in, login; wi-fi, wifi
    only_here = [word for word in only_here if len(word) < 5 or word not in joined_b]
    only_there = [word for word in only_there if len(word) < 5 or word not in joined_a]
    return only_here, only_there


def _qualifies(text: Text, added: list[str]) -> bool:
    """Whether an added word stands right before another word of substance."""
    return any(stem(word) in added and following not in FUNCTION_WORDS for word, following in pairwise(text.words))


def _same_word(one: str, other: str) -> bool:
    if _synonyms.get(one, set()) & _synonyms.get(other, set()):
        return True
    return _is_typo(one, other)


def _is_typo(one: str, other: str) -> bool:
    """Two neighbouring letters swapped, or one letter too many, in a word of five letters or more."""
    if min(len(one), len(other)) < 5 or abs(len(one) - len(other)) > 1:
        return False
    if len(one) == len(other):
        differing = [at for at in range(len(one)) if one[at] != other[at]]
        return len(differing) == 2 and differing[1] == differing[0] + 1 and sorted(one) == sorted(other)
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    at = next((at for at, letter in enumerate(shorter) if longer[at] != letter), len(shorter))
    return longer[at + 1 :] == shorter[at:]
