"""Refuses grammars that would keep the compiler or a mask busy for seconds, before anything is compiled.

llguidance bounds most of its work by fuel, but not nested repetitions and large divisors: ((a{1000}){1000}){1000} takes
minutes and can't be interrupted. Knows no tokens.
"""

import json
import re
from collections.abc import Iterable
from itertools import chain
from typing import Any

from engine.errors import InvalidRequest

MAX_SOURCE_BYTES = 128 * 1024
MAX_REPETITIONS = 10_000  # of nested counts, multiplied: a mask then takes 0.1 s at most
MAX_MULTIPLE = 10_000  # of "multipleOf": the automaton has a state for each remainder
MAX_CHOICES = 10_000
MAX_DEPTH = 100  # of a schema

# Possessive, and with an end that may be missing: what begins such a match without ending it is read once, not once
# for each place to begin at.
_COUNT = re.compile(r"\{\s*+(?P<least>\d++)\s*+(?:,\s*+(?P<most>\d*+)\s*+)?\}")
_LARK_COUNT = re.compile(r"~\s*(?P<least>\d+)(?:\s*\.\.\s*(?P<most>\d+))?")
_VERBOSE = re.compile(r"\(\?[a-zA-Z]*x")  # its comments and blanks would hide what stands before a count
_LARK_LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*+(")?|/(?:[^/\\\n]|\\.)++(/)?|//[^\n]*()')  # a group: its end


def check_size(source: str) -> None:
    if len(source) > MAX_SOURCE_BYTES or len(source.encode()) > MAX_SOURCE_BYTES:
        raise InvalidRequest(f"the grammar is longer than {MAX_SOURCE_BYTES} bytes", "grammar")


def check_regex(pattern: str) -> None:
    """Raises InvalidRequest when counts are nested too far. An estimate from above: it parses no regular expression."""
    if _VERBOSE.search(pattern):
        raise InvalidRequest("a regular expression can't use the verbose mode (?x)", "grammar")
    _check_counts(_COUNT.finditer(pattern), nesting=")}")


def check_lark(source: str) -> None:
    """Like `check_regex`; a count after a terminal's name multiplies, too."""
    if _VERBOSE.search(source):
        raise InvalidRequest("a regular expression can't use the verbose mode (?x)", "grammar")
    if re.search(r"[&~](?!\s*\d)", _LARK_LITERAL.sub(lambda found: "" if found.lastindex else found[0], source)):
        raise InvalidRequest("a grammar can't use & and ~ of terminals: nothing bounds what they cost", "grammar")
    for schema in re.finditer(r"%json\s*", source):
        try:
            check_schema(json.JSONDecoder().raw_decode(source, schema.end())[0])
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"what follows %json in the grammar is no JSON: {error}", "grammar") from error
    nesting = ")} ABCDEFGHIJKLMNOPQRSTUVWXYZ_"
    _check_counts(chain(_COUNT.finditer(source), _LARK_COUNT.finditer(source)), nesting)


def check_schema(schema: Any, depth: int = 0) -> None:
    """The same for what a JSON schema has inside."""
    if depth > MAX_DEPTH:
        raise InvalidRequest(f"the JSON schema is nested more than {MAX_DEPTH} deep", "grammar")
    if isinstance(schema, dict):
        if isinstance(pattern := schema.get("pattern"), str):
            check_regex(pattern)
        if isinstance(patterns := schema.get("patternProperties"), dict):
            for pattern in patterns:
                check_regex(pattern)
        divisor = schema.get("multipleOf")
        if isinstance(divisor, int | float) and not 1 / MAX_MULTIPLE <= divisor <= MAX_MULTIPLE:
            raise InvalidRequest(f"multipleOf must be at most {MAX_MULTIPLE}, and at least its inverse", "grammar")
    if isinstance(schema, dict | list):
        for part in schema.values() if isinstance(schema, dict) else schema:
            check_schema(part, depth + 1)


def _check_counts(counts: Iterable[re.Match[str]], nesting: str) -> None:
    """A count multiplies what is inside when it follows a group, another count or whatever `nesting` says."""
    inner, outer = 1, 1
    for count in counts:
        times = max(int(bound[:9]) for bound in (count["least"], count["most"]) if bound)
        if count.string[max(0, count.start() - 1)] in nesting:
            outer *= max(times, 1)
        else:
            inner = max(inner, times)
        if outer > MAX_REPETITIONS or (outer > 1 and inner * outer > MAX_REPETITIONS):
            message = f"repetitions within repetitions may not come to more than {MAX_REPETITIONS} in a grammar"
            raise InvalidRequest(message, "grammar")
