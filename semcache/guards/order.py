"""The same words in another order: what points where, who does it to whom. Knows nothing of what the words mean."""

from collections import Counter

from semcache.lexicon import DIRECTED, FUNCTION_WORDS, JOINERS, RECIPROCAL, SYMMETRIC
from semcache.text import Text, stem

_MOVING = ("of", "in", "for")  # the capital of France, France's capital; a list in Python, a Python list


def differs_in_order(a: Text, b: Text) -> bool:
    """The same words, but what points where has changed: Word to PDF, PDF to Word; she calls him, he calls her."""
    shared = a.word_set & b.word_set
    if shared & RECIPROCAL or (shared & SYMMETRIC and "from" not in shared):
        return False
    ours, theirs = _directions(a), _directions(b)
    for marker in ours.keys() & theirs.keys():
        here, there = ours[marker] - theirs[marker], theirs[marker] - ours[marker]
        if here and there and here <= shared and there <= shared:
            return True
    stays = {stem(word) for marker in ours if ours[marker] == theirs.get(marker) for word in ours[marker]}
    roles_a, roles_b = _roles(a), _roles(b)
    inverted = _is_inverted(roles_a, roles_b, stays)
    if _agent(a) != _agent(b) and (_agent(a) or _agent(b)) in shared:
        return not inverted  # did Ann call Bob, was Ann called by Bob
    if not inverted or Counter(roles_a) != Counter(roles_b):
        return False
    return not _is_moved_phrase(a, b)


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
    num_here, num_there = Counter(ours), Counter(theirs)
    place = {word: at for at, word in enumerate(theirs)}
    order = [place[word] for word in ours if word not in stays and num_here[word] == 1 and num_there[word] == 1]
    return order != sorted(order)


def _is_moved_phrase(a: Text, b: Text) -> bool:
    """The capital of France, France's capital: a genitive, or a particle that moved behind its object."""
    return any((word in a.word_set) != (word in b.word_set) for word in _MOVING)
