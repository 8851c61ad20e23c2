"""`assemble` takes chunks that differ in their text alone without parsing them: that must not be seen in the result."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.assemble import assemble

TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(['"', "\\", '","x":"', '"delta":{"content":"', "\n", "é", "🙂"]))
PADDING = st.text("abcXYZ019", max_size=8)


def chunk(delta, *, index=0, finish=None, **others):
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **others}


def both(one, other):
    return one | {"choices": one["choices"] + other["choices"]}


def with_logprobs(one):
    (choice,) = one["choices"]
    return one | {"choices": [choice | {"logprobs": {"content": [{"token": "a"}]}}]}


@st.composite
def texts(draw):
    """Mostly of one choice; usage comes as null, padding is of any length."""
    others = {"usage": None} if draw(st.booleans()) else {}
    if draw(st.booleans()):
        others = {"obfuscation": draw(PADDING)} | others
    return chunk({"content": draw(TEXTS)}, index=draw(st.sampled_from([0, 0, 0, 1])), **others)


OTHERS = st.sampled_from(
    [
        chunk({"role": "assistant", "content": ""}),
        chunk({"refusal": "no"}),
        chunk({"content": "both", "reasoning_content": "thought"}),
        chunk({"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f", "arguments": "{"}}]}),
        chunk({"content": "a"}, finish="length"),
        both(chunk({"content": "a"}), chunk({"content": "b"}, index=1)),
        with_logprobs(chunk({"content": "a"})),
        chunk({"content": "a"}, usage={"prompt_tokens": 1, "completion_tokens": 2}),
    ]
)


def written(chunks, separators, *, ascii_only):
    return [json.dumps(each, separators=separators, ensure_ascii=ascii_only).encode() for each in chunks]


@given(st.lists(st.one_of(texts(), texts(), texts(), OTHERS), max_size=12), st.booleans())
def test_a_run_of_texts_adds_up_as_if_each_chunk_were_parsed(chunks, ascii_only):
    chunks = [*chunks, chunk({}, finish="stop"), chunk({}, index=1, finish="stop")]
    in_a_run = assemble(written(chunks, (",", ":"), ascii_only=ascii_only), num_choices=2)
    one_by_one = assemble(written(chunks, (", ", ": "), ascii_only=ascii_only), num_choices=2)
    assert in_a_run is not None
    assert one_by_one is not None
    assert json.loads(in_a_run) == json.loads(one_by_one)


def test_a_long_run_adds_up_around_what_interrupts_it():
    said = [f'{number} \\ " ü' for number in range(300)]
    chunks = [chunk({"content": each}) for each in said]
    chunks[150:150] = [chunk({"content": "", "refusal": "no"}), chunk({"content": ""}, index=1)]
    chunks += [chunk({}, finish="stop"), chunk({}, index=1, finish="stop")]
    (first, second) = json.loads(assemble(written(chunks, (",", ":"), ascii_only=False), num_choices=2))["choices"]
    assert first["message"] == {"role": "assistant", "content": "".join(said), "refusal": "no"}
    assert second["message"]["content"] == ""


def test_a_broken_text_within_a_run_is_no_answer():
    good, stop = chunk({"content": "one"}), chunk({}, finish="stop")
    first, second, last = written([good, good, stop], (",", ":"), ascii_only=True)
    assert assemble([first, second, last]) is not None
    assert assemble([first, second.replace(b"one", b"\\x"), last]) is None
