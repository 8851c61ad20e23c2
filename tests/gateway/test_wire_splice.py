"""An upstream gets the client's own bytes: another model's name, perhaps an option, and nothing else changed."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.chat import parse_chat
from gateway.wire.embeddings import parse_embedding
from gateway.wire.inference import Inference
from gateway.wire.members import RepeatedKeyError, decode_members, locate, remove
from gateway.wire.splice import renamed, splice

MESSAGES = b'[{"role":"user","content":"the \\"model\\": \\"m\\" and \\u65e5 \xe6\x97\xa5"}]'


def chat(rest: bytes, model: bytes = b'"m"') -> Inference:
    return parse_chat(b'{"messages":' + MESSAGES + b',"model":' + model + rest + b"}")


def test_only_the_value_of_model_changes() -> None:
    # Nested keys and texts that say "model", numbers as they were written, fields nobody knows, odd spacing.
    raw = (
        b'  {"tools" : [ {"type":"function","function":{"name":"f","parameters":{"model":"m"}}} ],\n\t'
        b'"temperature":1.0,"x":1e2,"messages":' + MESSAGES + b',"model"\n: "m" ,'
        b'"top_k":40,"chat_template_kwargs":{"model":"m"}}\r\n '
    )
    spliced = splice(parse_chat(raw), model="gpt-4o")
    assert spliced == raw.replace(b'"model"\n: "m" ,', b'"model"\n: "gpt-4o" ,')


@pytest.mark.parametrize(
    "member",
    [
        b'"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":'
        b'"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"1"}]',
        b'"messages":[{"role":"user","content":"x","vendor":{"a":1.50}}],"top_k":5,"min_p":1e-2,"seed":9007199254740993',
        b'"messages":[{"role":"user","content":"x"}],"temperature":null,"chat_template_kwargs":{"enable_thinking":false}',
    ],
)
def test_nulls_and_unknown_fields_reach_the_upstream(member: bytes) -> None:
    raw = b'{"model":"m",' + member + b"}"
    assert splice(parse_chat(raw), model="n", include_usage=True) == b'{"model":"n",' + member + b"}"


def test_an_embedding_request_gains_no_encoding_format() -> None:
    assert splice(parse_embedding(b'{"input":"x","model":"m"}'), model="n") == b'{"input":"x","model":"n"}'


def test_nothing_to_change_gives_the_same_bytes() -> None:
    inference = chat(b',"stream":true,"stream_options":{"include_usage":true}')
    assert splice(inference, model="m") is inference.raw
    assert splice(inference, model="m", include_usage=True) is inference.raw
    plain = chat(b"")
    assert splice(plain, model="m", include_usage=True) is plain.raw  # only a stream has stream options


def test_a_name_is_escaped() -> None:
    assert json.loads(splice(chat(b""), model='a"\\\n日'))["model"] == 'a"\\\n日'


def test_a_key_written_with_escapes_is_found() -> None:
    raw = b'{"\\u006dodel":"m","messages":' + MESSAGES + b"}"
    assert splice(parse_chat(raw), model="n") == raw.replace(b'"m"', b'"n"', 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b'{"include_usage":true}'),
        (b"null", b'{"include_usage":true}'),
        (b"{ }", b'{"include_usage":true }'),
        (b'{"include_usage": false}', b'{"include_usage": true}'),
        (b'{"include_obfuscation":false}', b'{"include_usage":true,"include_obfuscation":false}'),
        (b'{ "vendor" : 1.0, "include_usage" : null }', b'{ "vendor" : 1.0, "include_usage" : true }'),
        (b'{"include_usage":false,"include_usage":false}', b'{"include_usage":true}'),
    ],
)
def test_usage_is_asked_for_beside_what_the_client_asked(before: bytes, after: bytes) -> None:
    inference = chat(b',"stream":true' + (b',"stream_options":' + before if before else b""))
    spliced = splice(inference, model="m", include_usage=True)
    assert bytes(decode_members(spliced)["stream_options"]) == after
    assert len(spliced) - len(inference.raw) == len(after) - len(before) + (0 if before else len(b'"stream_options":,'))


def test_usage_can_be_declined() -> None:
    inference = chat(b',"stream":true,"stream_options":{"include_usage":true}')
    assert b'"include_usage":false' in splice(inference, model="m", include_usage=False)


def test_a_body_that_can_be_read_in_two_ways_is_sent_as_it_was_judged() -> None:
    raw = b'{"model":"cheap","messages":[],"model":"dear"}'
    inference = Inference(endpoint="chat.completions", raw=raw, fields=decode_members(raw), model="dear")
    assert splice(inference, model="n") == b'{"model":"n","messages":[]}'


KEYS = st.text(st.sampled_from('abmodel"\\ \n{}[]:,é日🙂'), max_size=6) | st.sampled_from(["model", "stream_options"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
LAYOUTS = st.sampled_from(
    [
        {"separators": (",", ":")},
        {},
        {"indent": 2},
        {"indent": 0, "ensure_ascii": False},
        {"separators": (" ,\t", "\r\n: ")},
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=5), LAYOUTS, KEYS, st.sampled_from([None, True, False]), st.booleans())
def test_any_body_keeps_all_but_what_was_spliced(
    fields: dict[str, Any], layout: dict[str, Any], model: str, include_usage: bool | None, stream: bool
) -> None:
    options = fields.get("stream_options")
    fields["stream_options"] = options if isinstance(options, dict) and stream else None
    fields |= {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "x"}]}
    raw = json.dumps(fields, **layout).encode()
    known = fields["stream_options"]
    wanted = bool(known and known.get("include_usage"))
    inference = Inference(
        endpoint="chat.completions", raw=raw, fields=decode_members(raw), model="m", stream=stream, include_usage=wanted
    )
    spliced = json.loads(splice(inference, model=model, include_usage=include_usage))
    expected = fields | {"model": model}
    if include_usage is not None and stream and include_usage != wanted:
        expected["stream_options"] = (known or {}) | {"include_usage": include_usage}
    assert spliced == expected


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), VALUES), max_size=5), LAYOUTS)
def test_members_are_found_or_the_object_repeats_a_key(pairs: list[tuple[str, Any]], layout: dict[str, Any]) -> None:
    inside = [json.dumps({name: value}, **layout).strip()[1:-1] for name, value in pairs]
    raw = ("{" + ",".join(inside) + "}").encode()
    fields = decode_members(raw)
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        with pytest.raises(RepeatedKeyError):
            locate(raw, fields)
        return
    for name, member in locate(raw, fields).items():
        assert raw[member.value_start : member.value_end] == bytes(fields[name])
        assert raw[member.key_start : member.key_start + 3].decode() == f'"{name}"'


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), LAYOUTS, st.sampled_from("abc"))
def test_a_member_can_be_taken_out(fields: dict[str, Any], layout: dict[str, Any], name: str) -> None:
    raw = json.dumps(fields, **layout).encode()
    without = {key: value for key, value in fields.items() if key != name}
    removed = remove(raw, name)
    assert json.loads(removed) == without
    for key, value in decode_members(removed).items():
        assert bytes(value) == bytes(decode_members(raw)[key])


def test_taking_out_of_an_object_with_repeated_keys_takes_all_of_them() -> None:
    assert remove(b'{"a":1,"b":2,"a":3}', "a") == b'{"b":2}'


def test_taking_out_of_what_is_no_object_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        remove(b"[1]", "a")


def test_a_renamed_field_keeps_its_place_and_value() -> None:
    raw = b'{ "model":"m","messages":[{"role":"user","content":"max_tokens"}], "max_completion_tokens" : 50,"x":1.0 }'
    inference = renamed(parse_chat(raw), "max_completion_tokens", "max_tokens")
    assert inference.raw == raw.replace(b"max_completion_tokens", b"max_tokens")
    assert bytes(inference.fields["max_tokens"]) == b"50"
    assert inference.max_tokens == 50
    assert renamed(inference, "max_completion_tokens", "max_tokens") is inference
