"""Usage in the dialects of those who write it: each count is found, and is counted once."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.usage import Usage, read_usage, usage_object

PLAIN = {"prompt_tokens": 1000, "completion_tokens": 300, "total_tokens": 1300}
SHAPES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "openai": (
        PLAIN | {"prompt_tokens_details": {"cached_tokens": 900, "audio_tokens": 0}}
        | {"completion_tokens_details": {"reasoning_tokens": 200, "accepted_prediction_tokens": 0}},
        {"cached_tokens": 900, "reasoning_tokens": 200},
    ),
    "nulls": (PLAIN | {"prompt_tokens_details": None, "completion_tokens_details": {"reasoning_tokens": None}}, {}),
    "openrouter": (
        PLAIN | {"prompt_tokens_details": {"cached_tokens": 500, "cache_write_tokens": 400}, "cost": 0.01},
        {"cached_tokens": 500, "cache_write_tokens": 400},
    ),
    "deepseek": (
        PLAIN | {"prompt_cache_hit_tokens": 900, "prompt_cache_miss_tokens": 100},
        {"cached_tokens": 900},
    ),
    "deepseek, which says it in OpenAI's words too": (
        PLAIN | {"prompt_cache_hit_tokens": 900, "prompt_tokens_details": {"cached_tokens": 900}},
        {"cached_tokens": 900},
    ),
    "moonshot": (PLAIN | {"cached_tokens": 900}, {"cached_tokens": 900}),
    "litellm over anthropic": (
        PLAIN | {"cache_creation_input_tokens": 400, "cache_read_input_tokens": 500}
        | {"prompt_tokens_details": {"cached_tokens": 500, "cache_creation_tokens": 400}},
        {"cached_tokens": 500, "cache_write_tokens": 400},
    ),
    "alibaba": (
        PLAIN | {"prompt_tokens_details": {"cached_tokens": 0, "cache_creation_input_tokens": 800}},
        {"cache_write_tokens": 800},
    ),
    "a prompt without what was read and written": (
        {"prompt_tokens": 100, "completion_tokens": 300, "total_tokens": 1300}
        | {"cache_creation_input_tokens": 400, "cache_read_input_tokens": 500},
        {"cached_tokens": 500, "cache_write_tokens": 400},
    ),
    "perplexity": (PLAIN | {"reasoning_tokens": 200}, {"reasoning_tokens": 200}),
    "xai, whose answers are without their thoughts": (
        {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1300}
        | {"completion_tokens_details": {"reasoning_tokens": 200}},
        {"reasoning_tokens": 200},
    ),
    "gemini, which tells of thoughts in the total alone": (
        {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1300}, {"reasoning_tokens": 200},
    ),
}  # fmt: skip


@pytest.mark.parametrize("vendor", SHAPES)
def test_every_vendors_counts_are_found_and_counted_once(vendor: str) -> None:
    told, wanted = SHAPES[vendor]
    assert read_usage(msgspec.Raw(msgspec.json.encode(told))) == Usage(
        prompt_tokens=1000, completion_tokens=300, **wanted
    )


@pytest.mark.parametrize("told", ["null", "{}", '{"prompt_tokens": -1}', '"many"', '{"prompt_tokens": 1e3, "x": '])
def test_what_counts_nothing_is_told_apart_from_zero(told: str) -> None:
    found = read_usage(msgspec.Raw(told.encode()))
    assert found is None or found == Usage()


counts = st.integers(0, 2**40)


@given(counts, counts, counts, counts, counts)
def test_what_we_write_is_read_as_it_was(prompt: int, cached: int, written: int, completion: int, thought: int) -> None:
    usage = Usage(
        prompt_tokens=prompt + cached + written, cached_tokens=cached, cache_write_tokens=written,
        completion_tokens=completion + thought, reasoning_tokens=thought,
    )  # fmt: skip
    assert read_usage(msgspec.Raw(msgspec.json.encode(usage_object(usage)))) == usage
