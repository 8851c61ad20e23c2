"""Refuses grammars that would keep the compiler or a mask busy for seconds, before anything is compiled.

llguidance bounds most of its work by fuel, but not nested repetitions and large divisors: ((a{1000}){1000}){1000} takes
minutes and can't be interrupted. Nor does it bound how deep it recurses. Knows no tokens.
"""

import json
import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from engine.errors import InvalidRequest

MAX_SOURCE_BYTES = 128 * 1024
MAX_REPETITIONS = 10_000  # of nested counts, multiplied: a mask then takes 0.1 s at most
MAX_MULTIPLE = 10_000  # of "multipleOf": the automaton has a state for each remainder
MAX_CHOICES = 10_000
MAX_DEPTH = 100  # of a schema
MAX_REFERENCES = 300  # in a schema: each can be another level to recurse into. Two thousand fill a stack of 8 MB
MAX_OPTIONAL = 1_000  # properties that may be left out: compiling costs their square (0.4 s), as may a mask (0.15 s)
MAX_PATTERNS = 100  # as keys: each is compared with each (0.2 s)
MAX_ALTERNATIVES = 100  # that are objects: a mask follows all of them at once (30 ms)
MAX_RULES = 500  # of a grammar: the same
MAX_OPERATORS = 2_000  # of a regular expression. What may be left out costs quadratically: x?, 20,000 times, seconds

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
    _check_operators(pattern)
    _check_counts(_COUNT.finditer(pattern), nesting=")}")


def _check_operators(pattern: str) -> None:
    if sum(map(pattern.count, "?*+{(")) > MAX_OPERATORS:  # a part that may be left out has at least one of them
        message = f"a regular expression may have at most {MAX_OPERATORS} groups and repetitions"
        raise InvalidRequest(message, "grammar")


def check_lark(source: str) -> None:
    """Like `check_regex`; a count after a terminal's name multiplies, too."""
    if _VERBOSE.search(source):
        raise InvalidRequest("a regular expression can't use the verbose mode (?x)", "grammar")
    _check_rules(_without_schemas(source))
    nesting = ")} ABCDEFGHIJKLMNOPQRSTUVWXYZ_"
    _check_counts(chain(_COUNT.finditer(source), _LARK_COUNT.finditer(source)), nesting)


def _without_schemas(source: str) -> str:
    """What is left of a grammar without the JSON after each %json, which is checked."""
    rest, end = "", 0
    for found in re.finditer(r"%json\s*", source):
        if found.start() < end:  # stands in a schema
            continue
        try:
            schema, schema_end = json.JSONDecoder().raw_decode(source, found.end())
            check_schema(schema)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"what follows %json in the grammar is no JSON: {error}", "grammar") from error
        rest += source[end : found.start()]
        end = schema_end
    return rest + source[end:]


def _check_rules(rules: str) -> None:
    for literal in _LARK_LITERAL.finditer(rules):
        if literal[0].startswith("/"):
            _check_operators(literal[0])
    bare = _LARK_LITERAL.sub(lambda found: "" if found.lastindex else found[0], rules)
    if re.search(r"[&~](?!\s*\d)", bare):
        raise InvalidRequest("a grammar can't use & and ~ of terminals: nothing bounds what they cost", "grammar")
    if bare.count(":") > MAX_RULES:
        raise InvalidRequest(f"a grammar may have at most {MAX_RULES} rules", "grammar")


def check_schema(schema: Any) -> None:
    """The same for what a JSON schema has inside, and how much of what costs more than its length."""
    _check_part(schema, 0)
    for count, most, what in _COUNTED:
        if _total(schema, count) > most:
            raise InvalidRequest(f"a JSON schema may have at most {most} {what}", "grammar")


def _total(schema: Any, count: Callable[[dict[str, Any]], int]) -> int:
    """Of all objects in a schema. An estimate from above: a property may have a keyword's name, too."""
    if isinstance(schema, dict):
        return count(schema) + sum(_total(part, count) for part in schema.values())
    return sum(_total(part, count) for part in schema) if isinstance(schema, list) else 0


def _num_references(part: dict[str, Any]) -> int:
    return int("$ref" in part)


def _num_optional(part: dict[str, Any]) -> int:
    properties, required = part.get("properties"), part.get("required")
    if not isinstance(properties, dict):
        return 0
    return len(properties) - (len(properties.keys() & _texts(required)) if isinstance(required, list) else 0)


def _num_patterns(part: dict[str, Any]) -> int:
    patterns = part.get("patternProperties")
    return len(patterns) if isinstance(patterns, dict) else 0


def _num_alternatives(part: dict[str, Any]) -> int:
    members = [each for name in ("anyOf", "oneOf") if isinstance(each_of := part.get(name), list) for each in each_of]
    return sum(isinstance(member, dict) and "properties" in member for member in members)


def _texts(values: list[Any]) -> set[str]:
    return {value for value in values if isinstance(value, str)}


_COUNTED = (
    (_num_references, MAX_REFERENCES, "$refs"),
    (_num_optional, MAX_OPTIONAL, "properties that are not required"),
    (_num_patterns, MAX_PATTERNS, "patternProperties"),
    (_num_alternatives, MAX_ALTERNATIVES, "objects in anyOf and oneOf"),
)


def _check_part(schema: Any, depth: int) -> None:
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
            _check_part(part, depth + 1)


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
