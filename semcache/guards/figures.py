"""What has no synonym: numbers and their bounds, units, identifiers, symbols, names."""

import re
from collections.abc import Iterator

from semcache.lexicon import BOUNDS
from semcache.text import Text
from semcache.word_forms import NUMBER_WORDS, UNITS

# "in" is the inch before punctuation and a few words only: 5 in of rain, but $1000 in euros.
AT_NUMBER = re.compile(r"\d\s?((?!in\s+(?!(?:of|to|by|in|into|and|or)\b)\w)[^\W\d_]+|%)")
CURRENCIES = re.compile(r"[$€£¥₹]")
# Units that mean something else in another case: bits and bytes, milli and mega.
CASED_UNIT = re.compile(r"(?<![^\W\d_])(?:[kKMGTPmn]i?[bB](?:ps|/s)?|[mM](?:[WVAJNL]|Hz|hz|Wh|wh))(?![^\W_])")

_units = {word: line.split()[0] for line in UNITS.strip().splitlines() for word in line.split()}
_bounds = {phrase.strip(): kind for kind, phrases in BOUNDS.items() for phrase in phrases.split(",")}
_quantity = rf"[$€£¥₹]?\s?(?:[-−.]?\d|(?:an?|one|{'|'.join(NUMBER_WORDS)})\b)"
BOUND_BEFORE = re.compile(rf"\b({'|'.join(sorted(_bounds, key=len, reverse=True))})\s+(?={_quantity})", re.IGNORECASE)
BOUND_AFTER = re.compile(r"\d\s?(?:[a-z%]+\s)?(?:or|and)\s(more|less|fewer|over|above|under|below|older|younger)\b")
_OR_MORE = frozenset(("more", "over", "above", "older"))


def differs_in_numbers(a: Text, b: Text) -> bool:
    """12 is not 13, 5 to 10 is not 10 to 5, and .5 is not 5."""
    return a.numbers != b.numbers


def differs_in_bounds(a: Text, b: Text) -> bool:
    """More than 100 ml is neither 100 ml nor less than 100 ml."""
    return bool(a.numbers) and _bounds_of(a) != _bounds_of(b)


def differs_in_units(a: Text, b: Text) -> bool:
    """5 km is not 5 miles, 5 Mb not 5 MB, 20 not 20 %; another unit that only one side names makes no difference."""
    ours, theirs = set(_unit_words(a)), set(_unit_words(b))
    if (ours - theirs and theirs - ours) or "percent" in ours ^ theirs:
        return True
    return _differ_in_case(_cased_units(a), _cased_units(b))


def differs_in_code(a: Text, b: Text) -> bool:
    """Identifiers, paths, flags, addresses and operators have no synonyms, and -d is not -D."""
    return a.identifiers != b.identifiers


def differs_in_symbols(a: Text, b: Text) -> bool:
    """+ is not -, one emoji not another; models read many of them as the same unknown token."""
    return a.symbols != b.symbols


def differs_in_names(a: Text, b: Text) -> bool:
    """A name that the other question does not have in any spelling of its case."""
    return not a.names <= b.stems or not b.names <= a.stems


def _bounds_of(text: Text) -> set[str]:
    bounds = {_bounds[" ".join(match.group(1).lower().split())] for match in BOUND_BEFORE.finditer(text.text)}
    for match in BOUND_AFTER.finditer(text.text.lower()):
        bounds.add("at least" if match.group(1) in _OR_MORE else "at most")
    return bounds


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


def _cased_units(text: Text) -> list[str]:
    return [match.group().replace("K", "k") for match in CASED_UNIT.finditer(text.text)]


def _differ_in_case(ours: list[str], theirs: list[str]) -> bool:
    """Whether the same units stand there in another case; one that is all small (16 gb) may be meant either way."""
    if [unit.lower() for unit in ours] != [unit.lower() for unit in theirs]:
        return False
    return any(
        one != other and not one.islower() and not other.islower() for one, other in zip(ours, theirs, strict=True)
    )
