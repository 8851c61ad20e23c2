"""What comes beside or instead of the text: logprobs, the prompt's too, and embeddings."""

import pytest
from toy_engine import add, ask, deltas, drain, make, script, tokens
from toy_runner import EOS, ToyRunner, answer_alone, prompt_logprobs_alone, tails_of

from engine.types import Delta, GenerationRequest, Pooling, SamplingParams


def test_logprobs_are_one_for_each_token_whatever_the_text_does() -> None:
    """Also for tokens that make no text, are part of a stop string, or end the answer."""
    smile = "🙂".encode()
    for tail, options in ((script(EOS), {}), (script(b"stop"), {"stop": ("stop",)}), (script(b"!"), {"max_tokens": 6})):
        engine = make(ToyRunner(script={"r": script(b"a", smile) + tail}))
        answer = ask(engine, [1], logprobs=3, **options)
        assert [each.token_id for delta in answer for each in delta.logprobs] == tokens(answer)
        assert all(len(delta.logprobs) == len(delta.token_ids) for delta in answer)
        assert all(len(each.top) == 3 for delta in answer for each in delta.logprobs)


@pytest.mark.parametrize("num_host_blocks", [0, 20])
def test_prompt_logprobs_are_whole_whatever_happened(num_host_blocks: int) -> None:
    """Chunks of 7, a hot prefix cache, and a preemption in the middle of the prompt."""
    prompt = list(range(60))
    toy = ToyRunner(num_blocks=8, num_host_blocks=num_host_blocks)
    engine = make(toy, max_batch_tokens=7)
    ask(engine, prompt, max_tokens=1)
    request = add(engine, prompt, max_tokens=9, prompt_logprobs=2, ignore_eos=True)
    while request.num_computed < 28:
        engine.step()
    urgent = engine.add_request(
        GenerationRequest(
            request_id="urgent", prompt_token_ids=[9] * 60, sampling=SamplingParams(max_tokens=5, seed=0), priority=-1
        )
    )
    outputs = drain(engine)
    assert request.num_preemptions == 1
    answer = deltas(outputs[request])
    assert list(answer[0].prompt_logprobs) == prompt_logprobs_alone(prompt, 2)
    assert all(delta.prompt_logprobs == () for delta in answer[1:])
    assert (tokens(answer), answer[0].num_cached_tokens) == (answer_alone(prompt, 9, ignore_eos=True), 0)
    assert tokens(deltas(outputs[urgent])) == answer_alone([9] * 60, 5)


def test_every_choice_has_the_prompts_logprobs() -> None:
    engine = make(ToyRunner())
    sampling = SamplingParams(seed=3, max_tokens=4, prompt_logprobs=0)
    params = GenerationRequest(request_id="r", prompt_token_ids=[*range(20)], sampling=sampling, n=3)
    request = engine.add_request(params)
    answer = deltas(drain(engine)[request])
    for index in range(3):
        first = next(delta for delta in answer if delta.index == index)
        assert list(first.prompt_logprobs) == prompt_logprobs_alone([*range(20)], 0)


@pytest.mark.parametrize(("pooling", "num_cached"), [("last", 32), ("mean", 0)])
def test_an_embedding_is_one_delta_without_tokens(pooling: Pooling, num_cached: int) -> None:
    engine = make(ToyRunner(), max_batch_tokens=16)
    prompt = [1] * 40
    ask(engine, prompt, max_tokens=1)
    params = GenerationRequest(request_id="e", prompt_token_ids=prompt, pooling=pooling)
    request = engine.add_request(params)
    expected = (1.0,) if pooling == "mean" else tuple(map(float, tails_of(prompt)[-1]))
    assert deltas(drain(engine)[request]) == [
        Delta(text="", embedding=expected, finish_reason="stop", num_prompt_tokens=40, num_cached_tokens=num_cached)
    ]
