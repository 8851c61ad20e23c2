"""Every senseless request is refused with the name of the field at fault; the others get one form."""

import math
from typing import Any

import msgspec
import pytest

from engine.errors import InvalidRequest, PromptTooLong
from engine.types import EngineOptions, GenerationRequest, Grammar, SamplingParams
from engine.validation import check_options, normalised, validated


def check(prompt: Any = (1, 2), bos_id: int | None = None, **sampling: Any) -> GenerationRequest:
    params = GenerationRequest(request_id="r", prompt_token_ids=prompt, sampling=SamplingParams(**sampling))
    return validated(params, max_length=8, vocab_size=100, bos_id=bos_id)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("temperature", value) for value in (math.nan, math.inf, -0.1, 2.1, "1", None, True)),
        *(("top_p", value) for value in (math.nan, -0.1, 1.1, -math.inf, "0.5", None)),
        *(("min_p", value) for value in (math.nan, -0.1, 1.1, "0", None)),
        *(("frequency_penalty", value) for value in (math.nan, -2.1, 2.1, math.inf, None)),
        *(("presence_penalty", value) for value in (math.nan, -2.1, 2.1, "1", True)),
        *(("repetition_penalty", value) for value in (math.nan, 0, -1.0, math.inf, None)),
        *(("logit_bias", value) for value in ({100: 1.0}, {-1: 1.0}, {"5": 1.0}, {5: 100.5}, {5: -101}, {True: 1.0})),
        *(("logit_bias", value) for value in ({5: math.nan}, {5: math.inf}, {5: "1"}, None, [5])),
        *(("logprobs", value) for value in (-1, 21, 1.0, True)),
        *(("prompt_logprobs", value) for value in (-1, 21, "5")),
        *(("top_k", value) for value in (-2, 1.5, None, True)),
        *(("max_tokens", value) for value in (-1, 1.0, "3", False)),
        *(("seed", value) for value in (1.5, "x", 2**64, -(2**63) - 1)),
        *(("stop", value) for value in ("text", ("",), ("a", 3), None, 3)),
        *(("ignore_eos", value) for value in ("no", None, 1)),
        *(("stop_token_ids", value) for value in ((-1,), (100,), ("a",), (1.0,))),
    ],
)
def test_a_senseless_value_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(**{field: value})
    assert caught.value.param == field


@pytest.mark.parametrize("prompt", [[100], [-1], [1.5], ["a"], [2**40]])
def test_a_prompt_of_impossible_tokens_is_refused(prompt: list[Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(prompt)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("priority", 1.5), ("cache_salt", None), ("fairness_key", 3), ("request_id", b"x"), ("pooling", "cls")),
        *(("grammar", value) for value in ("a+", Grammar(kind="ebnf"), Grammar(kind="regex", source=None))),  # type: ignore[arg-type]
    ],
)
def test_a_field_of_a_wrong_type_or_kind_is_refused_by_name(field: str, value: Any) -> None:
    params = msgspec.structs.replace(GenerationRequest(request_id="r", prompt_token_ids=[1]), **{field: value})
    with pytest.raises(InvalidRequest) as caught:
        validated(params, max_length=8, vocab_size=100, bos_id=None)
    assert caught.value.param == field


def test_an_empty_prompt_becomes_bos_or_is_refused() -> None:
    assert check([], bos_id=7).prompt_token_ids == [7]
    with pytest.raises(InvalidRequest, match="prompt is empty"):
        check([])


def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers() -> None:
    assert len(check([1] * 7).prompt_token_ids) == 7
    with pytest.raises(PromptTooLong, match=r"9 tokens.*8") as caught:
        check([1] * 9)
    assert (caught.value.num_tokens, caught.value.limit) == (9, 8)
    with pytest.raises(PromptTooLong):
        check([1] * 8)


def test_top_p_zero_means_greedy_and_never_everything() -> None:
    assert normalised(SamplingParams(top_p=0.0), 100).temperature == 0
    assert normalised(SamplingParams(top_p=1e-9), 100).top_p == 1e-9


def test_top_k_has_one_form_for_off_and_is_clipped_to_the_vocabulary() -> None:
    assert [normalised(SamplingParams(top_k=k), 100).top_k for k in (-1, 0, 5, 1000)] == [0, 0, 5, 100]


def test_the_borders_of_every_range_are_allowed() -> None:
    edges = SamplingParams(
        min_p=1.0, frequency_penalty=-2, presence_penalty=2, repetition_penalty=0.01, logprobs=20, prompt_logprobs=0
    )
    assert normalised(edges, 100).logprobs == 20
    assert normalised(SamplingParams(logit_bias={99: -100, 0: 100, 5: 0}), 100).logit_bias == {99: -100.0, 0: 100.0}


def test_a_request_without_a_seed_gets_one_of_its_own() -> None:
    seeds = {normalised(SamplingParams(), 100).seed for _ in range(20)}
    assert len(seeds) == 20
    assert normalised(SamplingParams(seed=0), 100).seed == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_batch_tokens": 0},
        {"max_batch_size": 0},
        {"kv_cache_mb": 0},
        {"num_threads": 0},
        {"max_waiting": -1},
        {"kv_cache_dtype": "int4"},
        {"max_wait_ms": math.nan},
        {"max_model_len": 1},
        {"swap_space_gb": -1.0},
        {"swap_space_gb": math.inf},
    ],
)
def test_a_senseless_option_is_the_callers_bug(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        check_options(EngineOptions(model="m", **wrong))
