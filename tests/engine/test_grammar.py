"""Whatever the masks allow satisfies the grammar, and whatever satisfies it is allowed."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.engine import Engine
from engine.errors import EngineError, InvalidRequest, SwitchedOff
from engine.grammar import GrammarCompiler
from engine.loader.checkpoint import load_checkpoint
from engine.plan import TokenTable
from engine.request import Request
from engine.types import EngineOptions, GenerationRequest, Grammar
from tests.engine.grammars import Bytes, allowed, compiled, wander, write
from tests.engine.toy_runner import EOS, VOCAB, ToyRunner


def test_an_answer_may_end_exactly_when_it_is_complete() -> None:
    matcher = compiled("regex", "ab?")
    assert allowed(matcher) == [ord("a")]
    assert not matcher.is_complete
    matcher.accept(ord("a"))
    assert allowed(matcher) == [ord("b"), EOS]
    assert not matcher.is_finished
    matcher.accept(ord("b"))
    assert allowed(matcher) == [EOS]
    assert matcher.is_finished


def test_an_ended_answer_stays_ended() -> None:
    matcher = compiled("regex", "ab?")
    write(matcher, "a")
    matcher.accept(EOS)
    matcher.accept(EOS)  # an engine that ignores the end goes on
    assert matcher.is_finished
    assert allowed(matcher) == [EOS]


def test_what_the_mask_forbids_is_an_error() -> None:
    with pytest.raises(InvalidRequest, match="can't be followed"):
        compiled("regex", "ab").accept(ord("x"))
    with pytest.raises(EngineError, match="before its grammar"):
        compiled("regex", "ab").accept(EOS)


def test_a_failed_matcher_allows_nothing() -> None:
    matcher = compiled("regex", "ab")
    with pytest.raises(EngineError):
        matcher.accept(ord("x"))
    assert matcher.error
    assert allowed(matcher) == []


def test_forks_go_their_own_ways() -> None:
    first = compiled("choice", '["cat", "cow", "dog"]')
    write(first, "c")
    second = first.fork()
    write(first, "at")
    assert allowed(second) == [ord("a"), ord("o")]
    write(second, "ow")
    assert first.is_finished
    assert second.is_finished


def test_a_compiled_grammar_begins_anew_each_time() -> None:
    write(compiled("regex", "once"), "once")
    assert allowed(compiled("regex", "once")) == [ord("o")]


@pytest.mark.parametrize(
    ("kind", "source", "good", "bad"),
    [
        ("json_object", "", ['{"a": [1, null, "x"]}', "{}"], ["[", "1", '"']),
        ("json_schema", '{"type": "array", "items": {"enum": ["a", 2]}}', ['["a",2]', "[]"], ["[3", "{"]),
        ("json_schema", "true", ["1", '"x"', "[]"], ["x"]),
        ("regex", r"\d{3}-[a-z]+", ["123-abc"], ["12-", "a"]),
        ("choice", '["yes", "yes, please", "no", ""]', ["yes", "yes, please", "no", ""], ["maybe"]),
        ("choice", '["日本", "a\\"b"]', ["日本", 'a"b'], ["日a"]),
        ("lark", 'start: "x" rest*\nrest: /[0-9]/ "," | "y"', ["x", "x1,2,y"], ["y", "x,"]),
    ],
)
def test_each_kind(kind: str, source: str, good: list[str], bad: list[str]) -> None:
    for text in good:
        matcher = compiled(kind, source)
        write(matcher, text)
        assert matcher.is_complete
    for text in bad:
        with pytest.raises(EngineError):
            write(compiled(kind, source), text)


def test_as_many_properties_as_a_schema_may_have_can_be_written() -> None:
    write(compiled("json_schema", optional(1000)), '{"p7": 1, "p999": 2}')
    names = [f"p{i}" for i in range(3000)]
    required = {"properties": {name: {} for name in names}, "required": names, "additionalProperties": False}
    write(compiled("json_schema", json.dumps(required)), '{"p0": 1, "p1": 2')


def test_blanks_in_json_come_to_an_end() -> None:
    matcher = compiled("json_object")
    write(matcher, "{" + 20 * " ")
    assert ord(" ") not in allowed(matcher)


def nested(depth: int) -> str:
    return '{"type":"array","items":' * depth + "{}" + "}" * depth


def chain(length: int, link: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
    """A schema that gets to its end by so many $refs."""
    parts = {f"d{i}": link({"$ref": f"#/$defs/d{i + 1}"}) for i in range(length)}
    return json.dumps({"$defs": parts | {f"d{length}": {"type": "integer"}}, "$ref": "#/$defs/d0"})


def optional(count: int, prefix: str = "p") -> str:
    return json.dumps({"properties": {f"{prefix}{i}": {"type": "integer"} for i in range(count)}})


@pytest.mark.parametrize(
    ("kind", "source", "why"),
    [
        ("json_schema", "no json", "can't be used"),
        ("json_schema", "[1]", "a schema is an object"),
        ("json_schema", "false", "nothing satisfies it"),
        ("json_schema", '{"type": "string", "minLength": 5, "maxLength": 2}', "Unsatisfiable"),
        ("json_schema", '{"type": "integer", "minimum": 5, "maximum": 3}', "Unsatisfiable"),
        ("json_schema", '{"allOf": [{"type": "string"}, {"type": "number"}]}', "Unsatisfiable"),
        ("json_schema", '{"enum": []}', "Unsatisfiable"),
        ("json_schema", '{"$ref": "#"}', "nothing satisfies it"),
        ("json_schema", '{"properties": {"a": {}}, "required": [5, []]}', "Expected string"),
        ("json_schema", '{"type": "object", "unevaluatedProperties": false}', "unevaluatedProperties"),
        ("json_schema", '{"type": "no type"}', "can't be used"),
        ("json_schema", nested(101), "deep"),
        ("json_schema", nested(5000), "can't be used"),
        ("json_schema", '{"type": "integer", "multipleOf": 1000003}', "multipleOf"),
        ("json_schema", '{"items": {"pattern": "((a{100}){100}){100}"}}', "repetitions"),
        ("json_schema", '{"patternProperties": {"(a{1,200}){1,200}": {}}}', "repetitions"),
        ("regex", "a(", "unclosed group"),
        ("regex", "a(?=b)", "look-around"),
        ("regex", r"[^\s\S]", "nothing satisfies it"),
        ("regex", "((a{1000}){1000}){1000}", "repetitions"),
        ("regex", "a{200}{200}", "repetitions"),
        ("regex", "(?ix)(a{1000} # (\n){1000}", "verbose"),
        ("regex", "(" * 2_000 + "a" + ")" * 2_000, "can't be used"),
        ("regex", "a" * 200_000, "longer than"),
        ("choice", "[]", "at least one"),
        ("choice", "[1]", "at least one"),
        ("choice", "{", "can't be used"),
        ("choice", json.dumps([str(i) for i in range(10_001)]), "at most 10000"),
        ("lark", "", "can't be used"),
        ("lark", "start: foo", "unknown name"),
        ("lark", "start: start", "nothing satisfies it"),
        ("lark", "start: B\nB: A{200}\nA: /a{200}/", "repetitions"),
        ("lark", 'start: B ~ 200\nB: ("a"{200}) ~ 2..200', "repetitions"),
        ("lark", 'start: %json {"type": "integer", "multiple\\u004ff": 1000003}', "multipleOf"),
        ("lark", "start: %json {", "no JSON"),
        ("lark", "\n".join(["start: r0", *(f'r{i}: "x" r{i + 1}' for i in range(3000)), 'r3000: "y"']), "rules"),
        ("json_schema", chain(2000, lambda next_one: {"type": "array", "items": next_one}), "$refs"),
        ("json_schema", chain(2000, lambda next_one: {"allOf": [next_one]}), "$refs"),
        ("tools", "start: %json " + chain(2000, lambda next_one: {"allOf": [next_one]}), "$refs"),
        ("json_schema", optional(1001), "at most 1000 properties that are not required"),
        ("json_schema", json.dumps({"allOf": [json.loads(optional(600, name)) for name in "ab"]}), "not required"),
        ("tools", "start: %json " + optional(1001), "not required"),
        ("json_schema", json.dumps({"patternProperties": {f"^p{i}$": {} for i in range(101)}}), "patternProperties"),
        ("json_schema", json.dumps({"oneOf": [{"properties": {"a": {}}}] * 101}), "objects in anyOf and oneOf"),
        ("regex", "x?" * 20_000, "repetitions"),
        ("tools", "start: /" + "x?" * 20_000 + "/", "repetitions"),
        ("regex", "(x|)" * 20_000, "repetitions"),
        ("json_schema", json.dumps({"patternProperties": {"x?" * 20_000: {}}}), "repetitions"),
        ("lark", "start: A\nA: /.*a.{20}/ & ~/.*c.{18}/", "& and ~"),
        ("lark", "start: " + "(" * 50_000 + '"a"' + ")" * 50_000, "nested"),
        # Of these, each character could begin what the cost's estimate looks for, and none ends it.
        ("regex", "a{1," + " " * 100_000, "can't be used"),
        ("lark", 'start: "' + '\\"' * 50_000, "can't be used"),
        ("lark", "start: /" + "\\/" * 50_000, "can't be used"),
        ("lark", 'start: A\nA: "a & /b/', "& and ~"),
    ],
)
def test_a_bad_grammar_is_refused(kind: str, source: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(why)) as caught:
        compiled(kind, source)
    assert caught.value.param == "grammar"
    assert len(str(caught.value)) <= 300
    assert compiled("regex", "next").is_complete is False


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("regex", r"\d{4}-\d{2}-\d{2}T(\d{2}:){2}\d{2}(\.\d{1,9})?Z"),
        ("regex", "(a|b)*a(a|b){20}"),
        ("regex", "[a-z]{0,100000}"),
        ("regex", "([a-z]{1,30} ){1,30}"),
        ("choice", json.dumps([f"word{i}" for i in range(10_000)])),
        ("json_schema", json.dumps({"enum": [f"word{i}" for i in range(3000)]})),
        ("json_schema", json.dumps({"type": "object", "properties": {f"p{i}": {} for i in range(1000)}})),
        ("json_schema", nested(90)),
        ("json_schema", chain(298, lambda next_one: {"type": "array", "items": next_one})),
        ("json_schema", chain(298, lambda next_one: {"allOf": [next_one]})),
        ("json_schema", '{"type": "array", "items": {"$ref": "#"}}'),
        ("lark", "\n".join(["start: r0", *(f'r{i}: "x" r{i + 1}' for i in range(490)), 'r490: "y"'])),
    ],
)
def test_a_large_grammar_is_served(kind: str, source: str) -> None:
    matcher = compiled(kind, source)
    rng = np.random.default_rng(1)
    for _ in range(40):
        choices = [token for token in allowed(matcher) if token != EOS]
        if not choices:
            break
        matcher.accept(int(rng.choice(choices)))
    assert not matcher.error


def test_a_model_without_an_end_can_have_no_grammar() -> None:
    class Endless(Bytes):
        eos_ids: frozenset[int] = frozenset()

    with pytest.raises(InvalidRequest, match="end-of-sequence"):
        GrammarCompiler(Endless(), VOCAB).compile(Grammar(kind="json_object"))


def test_ends_beyond_the_models_tokens_are_left_out() -> None:
    class Generous(Bytes):
        eos_ids = frozenset({EOS, 99999})

    matcher = GrammarCompiler(Generous(), VOCAB).compile(Grammar(kind="regex", source="a"))
    write(matcher, "a")
    assert allowed(matcher, VOCAB) == [EOS]
    matcher.accept(EOS)
    assert allowed(matcher, VOCAB) == [EOS]


@pytest.mark.parametrize(("kind", "source"), [("regex", "\ud800"), ("choice", json.dumps(["a", "\udfff"]))])
def test_what_is_no_unicode_is_refused(kind: str, source: str) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        compiled(kind, source)


_scalars = st.sampled_from(
    [
        {"type": "string", "maxLength": 5},
        {"type": "integer", "minimum": -3, "maximum": 120},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "null"},
        {"enum": ["red", "green", 7, None]},
        {"type": "string", "pattern": "^[a-c]{2,4}$"},
        {"const": {"k": [1, "x"]}},
    ]
)


def _containers(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    lists = st.builds(lambda items, most: {"type": "array", "items": items, "maxItems": most}, inner, st.integers(0, 3))
    objects = st.builds(
        lambda properties, required: {
            "type": "object",
            "properties": properties,
            "required": sorted(required & properties.keys()),
            "additionalProperties": False,
        },
        st.dictionaries(st.sampled_from(["a", "b", "naïve", 'q"']), inner, max_size=3),
        st.sets(st.sampled_from(["a", "b", "naïve"])),
    )
    return st.one_of(lists, objects, st.builds(lambda *parts: {"anyOf": list(parts)}, inner, inner))


@settings(max_examples=60, deadline=None)
@given(st.recursive(_scalars, _containers, max_leaves=6), st.randoms(use_true_random=False))
def test_whatever_the_masks_allow_satisfies_the_schema(schema: dict[str, Any], random: Any) -> None:
    text = wander(compiled("json_schema", json.dumps(schema)), random.choice)
    if text is not None:
        jsonschema.validate(json.loads(text), schema)


_atoms = st.sampled_from(["a", "[0-9]", "é", r"\.", "(?:xy|z)", "[^a-y]"])
_regexes = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}"])),
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(_regexes, st.randoms(use_true_random=False))
def test_whatever_the_masks_allow_matches_the_regex(pattern: str, random: Any) -> None:
    text = wander(compiled("regex", pattern), random.choice, max_tokens=60)
    if text is not None:
        assert re.fullmatch(pattern, text.decode())


@settings(max_examples=60, deadline=None)
@given(_regexes, st.text("a0é.xyz", max_size=6))
def test_whatever_matches_the_regex_is_allowed(pattern: str, text: str) -> None:
    matcher = compiled("regex", pattern)
    try:
        write(matcher, text)
        fits = matcher.is_complete
    except EngineError:
        fits = False
    assert fits == (re.fullmatch(pattern, text) is not None)


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> TokenTable:
    return load_checkpoint(str(smollm2_path)).tokenizer


def test_a_real_vocabulary(smollm2: TokenTable) -> None:
    vocab_size = 49_152
    compiler = GrammarCompiler(smollm2, vocab_size)
    matcher = compiler.compile(Grammar(kind="json_object"))
    begin = allowed(matcher, vocab_size)
    assert all(smollm2.token_bytes(token_id).startswith(b"{") for token_id in begin)
    assert len(begin) > 1  # also {" and its like: any cut into tokens will do
    write(matcher, '{"naïve 🙂": [1.5e3, true]}', smollm2)
    assert set(allowed(matcher, vocab_size)) == smollm2.eos_ids


def test_grammars_outlive_preemption(smollm2_path: Path) -> None:
    """Room for a few of eight answers: whoever is thrown out goes on where it was in its grammar."""
    engine = Engine(EngineOptions(model=str(smollm2_path), kv_cache_mb=7, max_model_len=256, max_batch_tokens=64))
    prompt = engine.tokenizer.encode("Letters, letters, letters: " * 3)
    texts: dict[Request, str] = {}
    for index in range(8):
        grammar = Grammar(kind="regex", source=f"{index}(-[a-z]{{3}}){{12}}!")
        params = GenerationRequest(request_id=str(index), prompt_token_ids=prompt, grammar=grammar)
        texts[engine.add_request(params)] = ""
    while engine.has_work:
        for output in engine.step():
            assert output.delta is not None, output.error
            texts[output.request] += output.delta.text
        engine.check_integrity()
    assert engine.stats().preemptions_total > 0
    for request, text in texts.items():
        assert request.params.grammar is not None
        assert re.fullmatch(request.params.grammar.source, text)


def test_a_matcher_that_gave_up_allows_nothing() -> None:
    matcher = compiled("regex", "a")
    matcher.give_up("it takes too long")
    assert matcher.error == "it takes too long"
    assert allowed(matcher) == []
    with pytest.raises(InvalidRequest, match="takes too long") as caught:
        matcher.accept(ord("a"))
    assert caught.value.param == "grammar"


def test_lark_is_for_callers_that_are_trusted() -> None:
    request = GenerationRequest(request_id="1", prompt_token_ids=[1], grammar=Grammar(kind="lark", source='start: "a"'))
    with pytest.raises(SwitchedOff, match="lark_grammars") as caught:
        Engine(EngineOptions(model="toy"), ToyRunner()).prepare(request)
    assert caught.value.param == "grammar"
    assert Engine(EngineOptions(model="toy", lark_grammars=True), ToyRunner()).prepare(request).matcher is not None


def test_separators_of_a_schema_do_not_count() -> None:
    """They would be regular expressions of which nobody has checked what they cost."""
    matcher = compiled(
        "json_schema", '{"x-guidance": {"item_separator": "a+", "whitespace_pattern": "a*"}, "items": {}}'
    )
    write(matcher, "[1")
    assert ord("a") not in allowed(matcher)
    assert ord(",") in allowed(matcher)
    compiled("json_schema", '{"x-guidance": {"coerce_one_of": true}, "oneOf": [{"type": "null"}, {"const": 1}]}')
    compiled("json_schema", '{"x-guidance": 5}')
