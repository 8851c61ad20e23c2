"""A question as the guards read it: words, numbers, names, identifiers. Knows neither vectors nor other questions."""

import re
from functools import cached_property

from semcache.lexicon import FUNCTION_WORDS, IRREGULAR, NUMBER_WORDS

# Identifiers, in the order of precedence: what people type into a terminal or an editor, or copy from an invoice.
CODE = re.compile(
    r"""
      `[^`\n]+`                                 # `quoted`
    | https?://[^\s)>\]]+ | (?<![\w.+-])[\w.+-]++@[\w-]+\.[\w.]+ # address
    | (?<![\w-])--?[A-Za-z][\w-]*               # --flag, -f
    | (?<![\w./:>-])\w++(?:(?:\.|::|->|/)\w++)*+\( # call(
    | (?<![\w./:\\>-])[./~\\]*+[A-Za-z]\w*+(?:(?:\.|::|->|/|\\)[A-Za-z_]\w*+)++ # dotted.name, a/path, Cls::method
    | \b\w*[a-z0-9]_\w+ | (?<!\w)_\w+           # snake_case
    | \b[a-z]+[A-Z]\w* | \b[A-Z][a-z]+[A-Z]\w*  # camelCase, PascalCase
    | \b(?=\w*\d)(?=\w*[A-Za-z])\w+(?:-\w+)*    # mixed: ab12, 16GB, GPT-4o
    | \b[A-Za-z]{1,5}-\d[\w-]*                  # ORD-48213
    | [=!<>]=|[<>](?=\s|\d)|\+\+|&&|\|\|        # operators
    | \b[A-Za-z](?:\#|\+\+)                     # C#, C++
    """,
    re.VERBOSE,
)
NUMBER = re.compile(r"(?:(?<![\w)-])[-−])?\d+(?:,\d{3})*(?:[.:/]\d+)*")
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
SENTENCE_START = re.compile(r"(?:^|[.!?:;\n]\s*|[\"“(]\s*)$")


class Text:
    """Everything is computed when it is first asked for, and once."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def words(self) -> list[str]:
        """Lower-case words in order; hyphens split, contractions spelled out, possessive endings off."""
        return [word for match in WORD.finditer(self.text) for word in _spelled_out(match.group())]

    @cached_property
    def word_set(self) -> frozenset[str]:
        return frozenset(self.words)

    @cached_property
    def content(self) -> list[str]:
        """The stems of the words that carry the subject, in order, and the numbers among them."""
        return self.subject + self.numbers

    @cached_property
    def subject(self) -> list[str]:
        """`content` without the numbers."""
        return [stem(word) for word in self.words if word not in FUNCTION_WORDS and word not in NUMBER_WORDS]

    @cached_property
    def numbers(self) -> list[str]:
        """Numbers in order, in digits, thousands separators off; number words after them."""
        digits = [match.group().replace(",", "").replace("−", "-") for match in NUMBER.finditer(self.text)]
        return digits + [NUMBER_WORDS[word] for word in self.words if word in NUMBER_WORDS]

    @cached_property
    def identifiers(self) -> frozenset[str]:
        return frozenset(match.group().strip("`(").lower() for match in CODE.finditer(self.text))

    @cached_property
    def names(self) -> frozenset[str]:
        """Stems of capitalised words that do not merely begin a sentence; none in a text that is all capitals."""
        found = [match for match in WORD.finditer(self.text) if match.group()[0].isupper()]
        if len(found) > 3 and len(found) > 0.8 * len(self.words):
            return frozenset()
        names = set()
        for match in found:
            word = _spelled_out(match.group())[0]
            starts = SENTENCE_START.search(self.text, max(0, match.start() - 3), match.start()) is not None
            if word not in FUNCTION_WORDS and not (starts and match.start() == 0):
                names.add(stem(word))
        return frozenset(names)


def _spelled_out(word: str) -> tuple[str, ...]:
    """can't: can not; what's: what; India's: india."""
    word = word.lower().replace("’", "'")
    if word in ("cannot", "cant", "can't"):
        return ("can", "not")
    base, _, ending = word.partition("'")
    if word.endswith("n't"):
        return (word[:-3], "not")
    if ending in ("s", "m", "re", "ve", "ll", "d", ""):
        return (base,)
    return (base, ending)


def stem(word: str) -> str:
    """A light stem: plural, -ing, -ed and -ly off, so that inflected forms of a word meet."""
    if word in IRREGULAR:
        word = IRREGULAR[word]
    if len(word) <= 3:
        return word
    for suffix, replacement in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")):
        if word.endswith(suffix):
            return word[: -len(suffix)] + replacement
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for suffix in ("ing", "ed", "ly"):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word[: -len(suffix)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word
