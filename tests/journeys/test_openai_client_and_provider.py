"""The official client through the gateway to a good provider: what it says arrives to the letter, whole or streamed."""

import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.faults.good_behaviour import AFTER_CALLS, CITIES, HELLO, PERSON, THOUGHT
from tests.faults.misbehaviours import USAGE
from tests.support.server import Gateway

GOOD: dict[str, Any] = {"model": "probe/good", "extra_headers": {"cache-control": "no-store"}}
ASK: Any = [{"role": "user", "content": "What is the weather in Paris, Tokyo and Lima?"}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


class Person(BaseModel):
    name: str
    age: int


def calls_of(message: Any) -> list[tuple[str, Any]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]


def test_a_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(messages=ASK, **GOOD)
    assert answer.choices[0].message.content == HELLO
    assert answer.choices[0].message.reasoning_content == THOUGHT  # type: ignore[attr-defined]
    assert answer.usage is not None
    assert answer.usage.model_dump(exclude_none=True) == USAGE


@pytest.mark.parametrize("asks", [False, True])
def test_a_stream(client: openai.OpenAI, asks: bool) -> None:
    options: Any = {"stream_options": {"include_usage": True}} if asks else {}
    chunks = list(client.chat.completions.create(messages=ASK, stream=True, **GOOD, **options))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == HELLO
    assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage] == ([18] if asks else [])


async def _streamed_calls(gateway: Gateway, key: str) -> Any:
    async with openai.AsyncOpenAI(base_url=gateway.base_url, api_key=key, max_retries=0) as client:
        async with client.chat.completions.stream(messages=ASK, tools=TOOLS, **GOOD) as stream:
            kinds = [event.type async for event in stream]
            assert kinds.count("tool_calls.function.arguments.done") == len(CITIES)
            return (await stream.get_final_completion()).choices[0].message


@pytest.mark.anyio
async def test_parallel_calls_and_their_results(client: openai.OpenAI, gateway: Gateway, key: str) -> None:
    whole = client.chat.completions.create(messages=ASK, tools=TOOLS, **GOOD).choices[0].message
    wanted = [("weather", {"city": city}) for city in CITIES]
    assert calls_of(whole) == calls_of(await _streamed_calls(gateway, key)) == wanted
    assert whole.tool_calls is not None
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in whole.tool_calls]
    after = client.chat.completions.create(messages=[*ASK, whole, *results], tools=TOOLS, **GOOD)
    assert after.choices[0].message.content == AFTER_CALLS
    missing = [*ASK, whole, *results[1:]]
    with pytest.raises(openai.BadRequestError, match="not the same"):  # the provider's own word
        client.chat.completions.create(messages=missing, tools=TOOLS, **GOOD)


def test_structured_output(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(messages=ASK, response_format=Person, **GOOD)
    assert answer.choices[0].message.parsed == Person(**PERSON)
    with client.chat.completions.stream(messages=ASK, response_format=Person, **GOOD) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == Person(**PERSON)


@pytest.mark.parametrize("fields", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}])
def test_embeddings(client: openai.OpenAI, fields: Any) -> None:
    answer = client.embeddings.create(model="embed/good", input=["a", "four"], **fields)
    assert [item.index for item in answer.data] == [0, 1]
    if fields != {"encoding_format": "base64"}:  # asked for by name, it comes as it is
        assert [item.embedding for item in answer.data] == [[1.0, -0.5, 0.25], [4.0, -0.5, 0.25]]
    else:
        assert all(isinstance(item.embedding, str) for item in answer.data)


@pytest.mark.parametrize(
    ("behaviour", "kind", "code"),
    [
        ("400", openai.BadRequestError, "code_400"),
        ("404", openai.NotFoundError, "code_404"),
        ("409", openai.ConflictError, "code_409"),
        ("422", openai.UnprocessableEntityError, "code_422"),
        ("429", openai.RateLimitError, "rate_limit_exceeded"),
        ("401", openai.InternalServerError, "upstream_error"),  # our account's fault, not the client's
        ("500", openai.InternalServerError, "upstream_error"),
    ],
)
def test_errors(client: openai.OpenAI, behaviour: str, kind: type[openai.APIStatusError], code: str) -> None:
    for streamed in (False, True):
        with pytest.raises(kind) as refused:
            client.chat.completions.create(model=f"probe/{behaviour}", messages=ASK, stream=streamed)
        assert refused.value.code == code
        assert refused.value.request_id


@pytest.mark.parametrize("behaviour", ["cut", "short", "error-event"])
def test_a_broken_stream_raises(client: openai.OpenAI, behaviour: str) -> None:
    stream = client.chat.completions.create(model=f"probe/{behaviour}", messages=ASK, stream=True)
    with pytest.raises(openai.APIError):
        list(stream)
