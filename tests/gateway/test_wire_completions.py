"""Text completions and embeddings: the four shapes of a text, and what OpenAI refuses."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import InvalidRequestError
from gateway.wire.completions import parse_completion
from gateway.wire.embeddings import parse_embedding
from gateway.wire.inference import Inference
from tests.conformance.openai_schemas import conforms

Parse = Callable[[bytes], Inference]
ENDPOINTS = [(parse_completion, "prompt"), (parse_embedding, "input")]


def refusal(parse: Parse, fields: dict[str, Any]) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        parse(json.dumps({"model": "m"} | fields).encode())
    conforms(caught.value.encode(), "ErrorResponse")
    return caught.value


@pytest.mark.parametrize(("parse", "name"), ENDPOINTS)
@pytest.mark.parametrize(
    ("value", "prompts"),
    [
        ("one", ("one",)),
        (["one", "two"], ("one", "two")),
        ([1, 2, 3], ([1, 2, 3],)),
        ([[1], [2, 3]], ([1], [2, 3])),
    ],
)
def test_the_four_shapes_of_a_text(parse: Parse, name: str, value: Any, prompts: tuple[Any, ...]) -> None:
    assert parse(json.dumps({"model": "m", name: value}).encode()).prompts == prompts


@pytest.mark.parametrize(("parse", "name"), ENDPOINTS)
@pytest.mark.parametrize(
    "value", [[], {}, 5, True, [""] * 2049, ["a", 1], [1, "a"], [1, True], [1.0], [-1], [[]], [[1], "a"], [[1], [True]]]
)
def test_any_other_shape_is_refused(parse: Parse, name: str, value: Any) -> None:
    assert refusal(parse, {name: value}).param == name


@pytest.mark.parametrize(("parse", "name"), ENDPOINTS)
def test_a_missing_text_is_named(parse: Parse, name: str) -> None:
    assert refusal(parse, {}).param == name


def test_a_null_prompt_begins_a_new_document() -> None:
    assert parse_completion(b'{"model":"m","prompt":null}').prompts == ("<|endoftext|>",)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        ({"best_of": 21}, "best_of"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"best_of": 3, "stream": True}, "best_of"),
        ({"echo": "yes"}, "echo"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 6}, "logprobs"),
        ({"suffix": 1}, "suffix"),
        ({"temperature": 3}, "temperature"),
        ({"stop": [""]}, "stop"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
def test_faults_of_completions_are_named(fields: dict[str, Any], param: str) -> None:
    assert refusal(parse_completion, {"prompt": "x"} | fields).param == param


def test_completions_are_read() -> None:
    inference = parse_completion(
        b'{"model":"m","prompt":["a","b"],"max_tokens":0,"echo":true,"n":3,"stop":["x","y"],"best_of":3,"logprobs":0}'
    )
    assert inference.endpoint == "completions"
    assert (inference.max_tokens, inference.echo, inference.n, inference.stop) == (0, True, 3, ("x", "y"))
    assert inference.needs == {"logprobs"}  # 0 asks for the chosen tokens' own
    assert inference.num_choices == 6


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "user": 1}, "user"),
    ],
)
def test_faults_of_embeddings_are_named(fields: dict[str, Any], param: str) -> None:
    assert refusal(parse_embedding, fields).param == param


def test_embeddings_are_read() -> None:
    inference = parse_embedding(b'{"model":"m","input":"a","encoding_format":"base64","dimensions":8,"vendor":1}')
    assert (inference.endpoint, inference.encoding_format, inference.dimensions) == ("embeddings", "base64", 8)
    assert "vendor" in inference.fields
    assert parse_embedding(b'{"model":"m","input":"a"}').encoding_format == "float"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)
NAMES = ["model", "prompt", "input", "stop", "n", "max_tokens", "dimensions", "encoding_format", "logit_bias", "suffix"]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(ENDPOINTS), st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4), VALUES)
def test_any_object_is_parsed_or_refused(endpoint: tuple[Parse, str], fields: dict[str, Any], value: Any) -> None:
    parse, name = endpoint
    try:
        parse(json.dumps({"model": "m", name: value} | fields).encode())
    except InvalidRequestError as error:
        conforms(error.encode(), "ErrorResponse")
