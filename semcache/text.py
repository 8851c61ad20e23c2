"""A question as the guards read it: words, numbers, names, identifiers. Knows neither vectors nor other questions."""

import re
import unicodedata
from collections.abc import Iterator
from functools import cached_property

from semcache.lexicon import FUNCTION_WORDS
from semcache.word_forms import IRREGULAR, NUMBER_WORDS, UNINFLECTED, UNITS

# Identifiers, in the order of precedence: what people type into a terminal or an editor, or copy from an invoice.
CODE = re.compile(
    r"""
      `[^`\n]+`                                 # `quoted`
    | https?://[^\s)>\]]+ | (?<![\w.+-])[\w.+-]++@[\w-]+\.[\w.]+ # address
    | (?<![\w-])--?[A-Za-z][\w-]*               # --flag, -f
    | (?<![\w.:\\])\\[A-Za-z]\b                 # \d
    | (?<![\w./:>-])\w++(?:(?:\.|::|->|/)\w++)*+\( # call(
    | (?<![\w./:\\>-])(?:[A-Za-z]:)?[./~\\]*+[A-Za-z]\w*+(?:(?:\.|::|->|/|\\)[A-Za-z_]\w*+)++ # dotted.name, a/path
    | \b\w*[a-z0-9]_\w+ | (?<!\w)_\w+           # snake_case
    | \b[a-z]+[A-Z]\w* | \b[A-Z][a-z]+[A-Z]\w*  # camelCase, PascalCase
    | (?P<loose>
          \b(?=\w*\d)(?=\w*[A-Za-z])\w+(?:-\w+)* # mixed: ab12, 16GB, GPT-4o
        | \b[A-Za-z]{1,5}-\d[\w-]*              # ORD-48213
        | \b[A-Za-z](?:\#|\+\+)                 # C#, C++
      )
    | [=!<>]=|[<>](?=\s|\d)|\+\+|&&|\|\|        # operators
    """,
    re.VERBOSE,
)
NUMBER = re.compile(r"(?:(?<![\w)-])[-−])?(?:\d+(?:,\d{3})*(?:[.:/]\d+)*|(?<![\w.])\.\d+)")
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
# Operators, emoji, signs: all but letters, digits, spaces, punctuation, currencies and marks without a meaning.
SYMBOL = re.compile(
    r"""
      [^\w\s.,;:!?'"()\[\]{}\-/‐‑‒–—―…‘’‚“”„«»‹›·•¿¡§°®™©`´$€£¥₹%\ufe0e\ufe0f。，、！？：；「」『』（）【】《》]
    | (?<=\d)(?=%\s?[\d(])%                    # 7 % 3; 20% is a unit
    | (?<![\d\s])\s*%                         # the % operator
    | (?<=[\d)])\s[-−/]\s(?=[\d(])            # 8 - 4; a hyphen elsewhere is punctuation
    | (?<=[\d)])!(?=\s*[a-z0-9*/(=-])           # 5!
    """,
    re.VERBOSE,
)
SENTENCE_START = re.compile(r"(?:^|[.!?:;\n]\s*|[\"“(]\s*)$")


class Text:
    """Everything is computed when it is first asked for, and once."""

    def __init__(self, text: str) -> None:
        self.text = text if text.isascii() else unicodedata.normalize("NFC", text)

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
    def subject_set(self) -> frozenset[str]:
        return frozenset(self.subject)

    @cached_property
    def stems(self) -> frozenset[str]:
        return frozenset(map(stem, self.words))

    @cached_property
    def numbers(self) -> list[str]:
        """Numbers in order, in digits, thousands separators off; number words among them (twenty-five: 25)."""
        return list(_numbers(self.text))

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """As written, but those that people write in any case: GPT-4o, order numbers."""
        return frozenset(
            found.lower() if match.lastgroup == "loose" else found
            for match in CODE.finditer(self.text)
            for found in (match.group().strip("`("),)
        )

    @cached_property
    def symbols(self) -> list[str]:
        """What is neither word nor number nor punctuation, in order."""
        return [match.group().strip() for match in SYMBOL.finditer(self.text)]

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
            if len(word) == 1:  # type A, vitamin D
                if word != "i" and not starts:
                    names.add(word)
            elif word not in FUNCTION_WORDS and not (starts and match.start() == 0):
                names.add(stem(word))
        return frozenset(names)


# One of these is "one" without a figure too: an hour, per hour, one hour, 1 hour; a thousand, one thousand.
_SINGULAR = frozenset(word for word in UNITS.split() if len(word) >= 3 and word[-1] != "s" and word != "second")
_SINGULAR |= {"hundred", "thousand", "million", "billion", "dozen"}
_COUNT = re.compile(rf"{NUMBER.pattern}|{WORD.pattern}")


def _digits(number: str) -> str:
    number = number.replace(",", "").replace("−", "-")
    return number.replace(".", "0.", 1) if number.lstrip("-").startswith(".") else number


def _numbers(text: str) -> Iterator[str]:
    """Figures and number words in the order of the text, tens and ones put together. A "one" is mostly a pronoun."""
    tokens = [match.group() for match in _COUNT.finditer(text)]
    at = 0
    while at < len(tokens):
        token = tokens[at].lower()
        following = tokens[at + 1].lower() if at + 1 < len(tokens) else ""
        at += 1
        if not token[0].isalpha():
            if token != "1" or following not in _SINGULAR:
                yield _digits(token)
        elif token in NUMBER_WORDS:
            value = NUMBER_WORDS[token]
            ones = "1" if following == "one" else NUMBER_WORDS.get(following, "")
            if len(value) == 2 and value[0] >= "2" and value[1] == "0" and len(ones) == 1 and ones != "0":
                value = value[0] + ones
                at += 1
            yield value


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
    if len(word) <= 3 or word in UNINFLECTED:
        return word
    for suffix, replacement in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")):
        if word.endswith(suffix):
            return word[: -len(suffix)] + replacement
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
        if word in UNINFLECTED:
            return word
    for suffix in ("ing", "ed", "ly"):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word[: -len(suffix)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word
