"""A request's grammar to a matcher over the model's own tokens. Knows no request's text and no logits.

Grammars are compiled by llguidance (https://github.com/guidance-ai/llguidance): Lark's notation, Rust's regular
expressions, and the parts of JSON Schema that it lists; what it lacks is refused, never ignored.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from typing import Any

import llguidance
import numpy as np

from engine.errors import InvalidRequest
from engine.grammar.cost import MAX_CHOICES, check_lark, check_regex, check_schema, check_size
from engine.grammar.matcher import Matcher
from engine.grammar.threads import BoundedCalls
from engine.json_style import FREE
from engine.plan import TokenTable
from engine.types import Grammar, GrammarKind

COMPILE_SECONDS = 10.0
MAX_COMPILING = 4  # grammars at a time
CACHE_SIZE = 16  # compiled grammars; a large one takes some 30 MB
_LIMITS: dict[str, Any] = {
    "max_items_in_row": 10_000,  # properties that may come next, about
    "initial_lexer_fuel": 500_000,  # 10 ms
    "step_lexer_fuel": 200_000,  # 14 ms a mask
    "max_lexer_states": 50_000,  # 100 MB
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}
_NAMES: dict[GrammarKind, str] = {
    "json_schema": "JSON schema",
    "json_object": "JSON grammar",
    "regex": "regular expression",
    "choice": "list of choices",
    "lark": "grammar",
    "tools": "tools' schemas",
}
_MESSAGE_LENGTH = 300
_UNSATISFIABLE = "nothing satisfies it"
_LISTING = re.compile(r"<|\s*\d+ \||\s*\^\s*$")  # "<non-verbose/>", and the grammar around a fault
_PLACE = re.compile(r"at \d+\(\d+\): ")


class GrammarCompiler:
    """`vocab_size` is the model's: its logits may have more columns than the tokenizer has tokens.

    Thread-safe. The tokenizer's table (0.2 s) is built when the first grammar comes.
    """

    def __init__(self, tokenizer: TokenTable, vocab_size: int, seconds: float = COMPILE_SECONDS) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        # A config may name ends that this model has no token for.
        self._eos_ids = frozenset(token_id for token_id in tokenizer.eos_ids if token_id < vocab_size)
        self._calls = BoundedCalls("a grammar's compilation", seconds=seconds, most=MAX_COMPILING)
        self._lock = threading.Lock()
        self._table: llguidance.LLTokenizer | None = None
        self._compiled: OrderedDict[Grammar, Matcher] = OrderedDict()

    def compile(self, grammar: Grammar) -> Matcher:
        """A matcher at the answer's beginning.

        Raises InvalidRequest (param "grammar") for a grammar that is none, that nothing satisfies, or that is too
        much work; EngineOverloaded when too many are being compiled. It takes up to a second for the largest, and lets
        go of the GIL.
        """
        with self._lock:
            known = self._compiled.get(grammar)
        built = known or self._built_in_time(grammar)  # without the lock: others need not wait for a large one
        with self._lock:
            self._compiled[grammar] = built
            self._compiled.move_to_end(grammar)
            if len(self._compiled) > CACHE_SIZE:
                self._compiled.popitem(last=False)
            return built.fork()

    def _built_in_time(self, grammar: Grammar) -> Matcher:
        try:
            source = _translated(grammar)
        except UnicodeEncodeError as error:
            raise _refused(grammar, "it has half of a surrogate pair, which is no text") from error
        try:
            return self._calls.call(lambda: self._build(grammar, source))
        except TimeoutError as error:
            raise _refused(grammar, "it takes too long to compile") from error

    def _build(self, grammar: Grammar, source: str) -> Matcher:
        if not self._eos_ids:
            raise InvalidRequest("this model has no end-of-sequence token, which an answer with a grammar needs")
        limits = llguidance.LLParserLimits(**_LIMITS)
        inner = llguidance.LLMatcher(self._token_table(), source, log_level=0, limits=limits)
        matcher = Matcher(inner, self._eos_ids)
        mask = np.zeros((self._vocab_size + 31) // 32, np.int32)
        if not matcher.error:
            matcher.fill_mask(mask)  # some contradictions show only here
        if matcher.error:
            raise _refused(grammar, matcher.error)
        if not mask.any():
            raise _refused(grammar, _UNSATISFIABLE)
        return matcher

    def _token_table(self) -> llguidance.LLTokenizer:
        with self._lock:
            if self._table is None:
                wrapper = llguidance.TokenizerWrapper(
                    _Vocabulary(self._tokenizer, self._vocab_size, min(self._eos_ids))
                )
                self._table = llguidance.LLTokenizer(wrapper, eos_token=sorted(self._eos_ids))
            return self._table


def _translated(grammar: Grammar) -> str:
    """The grammar in llguidance's own form. Raises InvalidRequest."""
    check_size(grammar.source)
    if grammar.kind == "json_schema":
        return _from_schema(grammar)
    if grammar.kind == "json_object":
        return _freely_written({"type": "object"})
    if grammar.kind == "regex":
        check_regex(grammar.source)
        return str(llguidance.LLMatcher.grammar_from_regex(grammar.source))
    if grammar.kind == "choice":
        return _from_choices(grammar)
    check_lark(grammar.source)
    return str(llguidance.LLMatcher.grammar_from_lark(grammar.source))


def _from_schema(grammar: Grammar) -> str:
    try:
        schema = json.loads(grammar.source)
        if not isinstance(schema, dict | bool):
            raise _refused(grammar, "a schema is an object")
        check_schema(schema)
        if schema is False:
            raise _refused(grammar, _UNSATISFIABLE)
        return _freely_written({} if schema is True else schema)
    except (ValueError, RecursionError) as error:
        raise _refused(grammar, str(error)) from error


def _freely_written(schema: dict[str, Any]) -> str:
    """Of a schema's own "x-guidance" only switches count: its separators are regular expressions nobody has checked."""
    own = schema.get("x-guidance")
    switches = {name: on for name, on in own.items() if isinstance(on, bool)} if isinstance(own, dict) else {}
    return str(llguidance.LLMatcher.grammar_from_json_schema(schema | {"x-guidance": switches | FREE}))


def _from_choices(grammar: Grammar) -> str:
    try:
        choices = json.loads(grammar.source)
    except ValueError as error:
        raise _refused(grammar, str(error)) from error
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, str) for choice in choices):
        raise _refused(grammar, "choices are a list of at least one string")
    if len(choices) > MAX_CHOICES:
        raise _refused(grammar, f"there are {len(choices)} choices; at most {MAX_CHOICES} are possible")
    # One terminal for all: as rules, ten thousand of them take seconds.
    words = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in dict.fromkeys(choices) if choice)
    start = ("CHOICE" if words else "") + (' | ""' if words and "" in choices else "" if words else '""')
    return str(llguidance.LLMatcher.grammar_from_lark(f"start: {start}\n" + (f"CHOICE: {words}\n" if words else "")))


def _refused(grammar: Grammar, why: str) -> InvalidRequest:
    lines = [line for line in why.splitlines() if not _LISTING.match(line)]
    words = " ".join(" ".join(lines).split()).replace("NoExtensionBias", _UNSATISFIABLE)
    words = _PLACE.sub("", words) if grammar.kind != "lark" else words  # a place in a grammar the caller never saw
    message = f"the {_NAMES[grammar.kind]} can't be used: {words}"
    return InvalidRequest(message[:_MESSAGE_LENGTH], "grammar")


class _Vocabulary:
    """The tokenizer in the form that `llguidance.TokenizerWrapper` reads."""

    bos_token_id = None

    def __init__(self, tokenizer: TokenTable, vocab_size: int, eos_id: int) -> None:
        self._tokenizer = tokenizer
        self.tokens = [tokenizer.token_bytes(i) for i in range(vocab_size)]
        # Control tokens have no text, and may stand nowhere in an answer; each needs a name of its own.
        self.special_token_ids = [i for i, text in enumerate(self.tokens) if not text]
        for i in self.special_token_ids:
            self.tokens[i] = f"<|control {i}|>".encode()
        self.eos_token_id = eos_id

    def __call__(self, text: str | bytes) -> list[int]:
        text = text if isinstance(text, str) else text.decode()
        return self._tokenizer.encode(text, add_bos=False)
