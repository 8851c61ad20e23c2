"""What a text that is still being written may become: a call, a list of calls, a marker."""

from collections.abc import Collection, Sequence

from engine.tools.calls.notation import Notation


def notation_of(text: str, notations: Sequence[Notation], names: Collection[str]) -> Notation | None:
    """The notation of a call that begins here."""
    return next((notation for notation in notations if notation.begins(text, names)), None)


def begins_call(text: str, notations: Sequence[Notation], names: Collection[str]) -> bool | None:
    """Whether a call begins here; None when it takes more text to say."""
    answers = [notation.begins(text, names) for notation in notations]
    return True if True in answers else None if None in answers else False


def begins_calls(text: str, notations: Sequence[Notation], names: Collection[str]) -> bool | None:
    """The same for an answer that nothing announces: a call that may stand alone, or a list of calls."""
    begin = text.lstrip()
    is_list = begin.startswith("[")
    begin = begin[1:].lstrip() if is_list else begin
    return begins_call(begin, [each for each in notations if is_list or each.stands_alone], names)


def overlap(text: str, marker: str) -> int:
    """How many of the text's last characters could be the marker's first."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if marker.startswith(text[-length:]):
            return length
    return 0
