"""What is asked of whom, and of which time: question words, persons, tenses."""

import re
from itertools import pairwise

from semcache.lexicon import words
from semcache.text import Text, stem
from semcache.word_forms import IRREGULAR

_FIRST_PERSON = frozenset(("my", "mine", "our", "ours"))
_SECOND_PERSON = frozenset(("your", "yours"))
_PERSONS = {
    word: person
    for person, words in {"I": "i me we us", "you": "you u", "they": "they them he him she her"}.items()
    for word in words.split()
}
_GENDERED = {"he": "he", "him": "he", "his": "he", "she": "she", "her": "she", "hers": "she"}
# Who says "can you tell me" or "how do you" means neither you nor me.
COURTESY = re.compile(
    r"""
      \b(?:can|could|would|will|do|may|might)\ (?:you|u|i)(?:\ mind)?(?:\ please|\ kindly)?
        \ (?:know|tell|telling|show|explain|explaining|help|describe|teach|advise|let|ask|suggest|recommend|give|point)
        (?:\ to)?(?:\ (?:me|us|you)\b)?
    | \b(?:tell|show|teach|help|let|give|explain\ to|walk|remind)\ (?:me|us)\b
    | \bi\ (?:would\ like|like|want|wanted|need|needed|would\ love|have|must|gotta)
        (?:(?:\ for)?\ you)?(?:\ help)?(?:\ to|\ with|\ know)+\b
    | \bi\ (?:would\ like|want|need|have\ a\ question|(?:(?:am|was)\ )?wondering|wonder)\b
    | \bfor\ (?:me|us)(?:\ please)?$
    | ^(?:will|would)\ you\b(?!.*\b(?:i|me|us|we)\b)(?=\ \w+\ (?:a|the|my|to)\b)
    | (?:\b(?:how|where|when|what|which|why)(?:\ \w+)?\ (?:do|can|should|would|could|must|may)|^(?:can|could|may))
        \ (?:i|you|we|u)\b(?!.*\b(?:i|me|you|us|we|they|them)\b)
    """,
    re.VERBOSE,
)
_ASKS = {"who": "who", "whom": "who", "when": "when", "where": "where", "why": "why", "how": "how"}
_MEASURES = frozenset(("many", "much", "long", "old", "far", "often", "big", "tall", "fast", "high", "deep"))
_NAMES_A_QUESTION = frozenset((*_ASKS, "what", "which", "whose", "way", "ways", "possible"))
_OPENS_YES_NO = words("is are am was were do does did has have had will would should must may might can could")
_MAY_ASK_HOW = frozenset(("can", "could", "may", "might", "would"))  # can I reset it, how can I reset it
_PAST = frozenset(("was", "were", "did", "had"))
_PRESENT = frozenset(("is", "are", "am", "does", "do"))
_FUTURE = frozenset(("will", "shall", "gonna", "wo"))  # wo: won't


def differs_in_question(a: Text, b: Text) -> bool:
    """who, when, where, why, how and how many are different questions; what and which may stand for any of them.

    Whether something is so is another question than why, when or where it is.
    """
    ours, theirs = _asks(a), _asks(b)
    if ours and theirs:
        return not ours & theirs
    return _asks_whether(a, theirs) or _asks_whether(b, ours)


def differs_in_person(a: Text, b: Text) -> bool:
    """My balance is not your balance, what he does is not what she does, I owe you is not you owe me."""
    if _genders(a) != _genders(b):
        return True
    ours, theirs = _persons(a), _persons(b)
    if ours and theirs and ours != theirs and (ours[0] != theirs[0] or min(len(ours), len(theirs)) > 1):
        return True
    if a.word_set & _FIRST_PERSON and b.word_set & _SECOND_PERSON:
        return not (b.word_set & _FIRST_PERSON or a.word_set & _SECOND_PERSON or "you" in b.word_set)
    if b.word_set & _FIRST_PERSON and a.word_set & _SECOND_PERSON:
        return not (a.word_set & _FIRST_PERSON or b.word_set & _SECOND_PERSON or "you" in a.word_set)
    return False


def differs_in_tense(a: Text, b: Text) -> bool:
    """What was is neither what is nor what will be."""
    if _used_to(a) != _used_to(b) or _is_past_for(a, b) or _is_past_for(b, a):
        return True
    past_a, past_b = bool(a.word_set & _PAST), bool(b.word_set & _PAST)
    if past_a == past_b:
        return False
    return bool((b if past_a else a).word_set & _PRESENT)


def _asks(text: Text) -> set[str]:
    asks: set[str] = set()
    for word, following in pairwise([*text.words, ""]):
        kind = _ASKS.get(word)
        if kind == "how" and following in _MEASURES:
            kind = f"how {following}"
        if kind is not None:
            asks.add(kind)
    return asks


def _asks_whether(text: Text, others: set[str]) -> bool:
    """Whether the text wants a yes or a no where the other question asks for something else."""
    if not others or not text.words or text.words[0] not in _OPENS_YES_NO or text.word_set & _NAMES_A_QUESTION:
        return False
    if "reason" in text.word_set or "know" in text.words[:3]:  # is there a reason why, do you know when
        return False
    asks_how = all(kind.startswith("how") for kind in others)
    return not asks_how or not (text.words[0] in _MAY_ASK_HOW or text.words[:2] == ["is", "there"])


def _persons(text: Text) -> list[str]:
    """Who stands in the question, in order, repetitions and courtesies aside."""
    if text.word_set.isdisjoint(_PERSONS):
        return []
    persons: list[str] = []
    for word in COURTESY.sub(" ", " ".join(text.words)).split():
        person = _PERSONS.get(word)
        if person is not None and (not persons or persons[-1] != person):
            persons.append(person)
    return persons


def _genders(text: Text) -> list[str]:
    return [_GENDERED[word] for word in text.words if word in _GENDERED]


def _used_to(text: Text) -> bool:
    return any(word in ("use", "used") and after == "to" for word, after in pairwise(text.words))


def _is_past_for(past: Text, future: Text) -> bool:
    """Whether one tells of what the other foresees: when did it open, when will it open; who won, who will win."""
    if past.word_set & _FUTURE or not future.word_set & _FUTURE or future.word_set & _PAST:
        return False
    if past.word_set & _PAST:
        return True
    return any(IRREGULAR.get(word) in future.word_set for word in past.word_set) or any(
        word.endswith("ed") and stem(word) in future.stems and word not in future.word_set for word in past.word_set
    )
