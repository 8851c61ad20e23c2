"""Cheap vetoes: what two questions must have in common, however near their embeddings are. Pure functions of two texts.

An embedding hardly sees a changed number, a negation or a swap; these comparisons of words do. They are one-sided by
design: a veto costs a hit, a missing veto costs a wrong answer. They know English; see docs/semcache.md for limits.
"""

from collections.abc import Callable

from semcache.guards.figures import (
    differs_in_bounds,
    differs_in_code,
    differs_in_names,
    differs_in_numbers,
    differs_in_symbols,
    differs_in_units,
)
from semcache.guards.intent import differs_in_person, differs_in_question, differs_in_tense
from semcache.guards.order import differs_in_order
from semcache.guards.polarity import (
    differs_by_opposites,
    differs_in_negation,
    differs_in_relation,
    differs_in_restriction,
)
from semcache.guards.substance import are_far_apart, differs_by_addition, differs_in_substance
from semcache.text import Text

__all__ = ["GUARDS", "Text", "veto"]

GUARDS: tuple[tuple[str, Callable[[Text, Text], bool]], ...] = (
    ("number", differs_in_numbers),
    ("number", differs_in_bounds),
    ("unit", differs_in_units),
    ("negation", differs_in_negation),
    ("antonym", differs_by_opposites),
    ("code", differs_in_code),
    ("symbol", differs_in_symbols),
    ("entity", differs_in_names),
    ("question", differs_in_question),
    ("person", differs_in_person),
    ("tense", differs_in_tense),
    ("restriction", differs_in_restriction),
    ("order", differs_in_order),
    ("relation", differs_in_relation),
    ("substitution", differs_in_substance),
    ("addition", differs_by_addition),
)


def veto(asked: Text, stored: Text) -> str | None:
    """The first guard that tells the two questions apart, as "guard:name"; None if none does."""
    if asked.text == stored.text:
        return None
    if are_far_apart(asked, stored):  # the other guards may compare each word with each
        return "guard:substitution"
    for name, differs in GUARDS:
        if differs(asked, stored):
            return f"guard:{name}"
    return None
