"""Requests through the whole engine: prefix hits, aborts, ends, refusals, failures, and what comes beside the text."""

import itertools
import re
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from toy_runner import BOS, EOS, ToyRunner, ToyTokenizer, answer_alone, prompt_logprobs_alone, tails_of

from engine.engine import Engine, Output
from engine.errors import InvalidRequest, PromptTooLong, StepFailed, TemplateError
from engine.plan import StepResult
from engine.request import Request
from engine.types import Delta, EngineOptions, GenerationRequest, Grammar, Pooling, SamplingParams


def make(toy: ToyRunner, **options: Any) -> Engine:
    return Engine(EngineOptions(model="toy", **{"max_batch_tokens": 64, "max_batch_size": 8, **options}), toy)


def add(engine: Engine, prompt: list[int], name: str = "r", salt: str = "", **sampling: Any) -> Request:
    return engine.add_request(
        GenerationRequest(
            request_id=name,
            prompt_token_ids=prompt,
            cache_salt=salt,
            sampling=SamplingParams(**{"temperature": 0.0, **sampling}),
        )
    )


def drain(engine: Engine, max_steps: int = 5000) -> dict[Request, list[Output]]:
    outputs: dict[Request, list[Output]] = {}
    for _ in range(max_steps):
        if not engine.has_work:
            engine.check_integrity()
            assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_blocks
            return outputs
        for output in engine.step():
            outputs.setdefault(output.request, []).append(output)
        engine.check_integrity()
    raise AssertionError("the engine does not come to an end")


def deltas(outputs: list[Output]) -> list[Delta]:
    assert all(output.delta is not None for output in outputs), outputs
    return [output.delta for output in outputs if output.delta is not None]


def ask(engine: Engine, prompt: list[int], **more: Any) -> list[Delta]:
    request = add(engine, prompt, **more)
    return deltas(drain(engine)[request])


def tokens(answer: list[Delta]) -> list[int]:
    return [token for delta in answer for token in delta.token_ids]


def text(answer: list[Delta]) -> str:
    return "".join(delta.text for delta in answer)


def check_books(answer: list[Delta], num_prompt: int) -> None:
    """Exactly one end, and the same count of tokens whichever way it is counted."""
    assert [delta.finish_reason is not None for delta in answer] == [False] * (len(answer) - 1) + [True]
    assert answer[-1].num_generated_tokens == len(tokens(answer))
    assert all(delta.num_prompt_tokens == num_prompt for delta in answer)


# --- the prefix cache -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 48, 49])
def test_a_repeated_prompt_is_answered_alike_and_computes_at_least_one_token(length: int) -> None:
    engine = make(ToyRunner())
    prompt = [i % 250 for i in range(length)]
    first, second = (ask(engine, prompt, max_tokens=9) for _ in range(2))
    assert tokens(first) == tokens(second) == answer_alone(prompt, 9)
    assert first[-1].num_cached_tokens == 0
    assert second[-1].num_cached_tokens == min(length // 16 * 16, length - 1)


def test_a_conversation_goes_on_from_its_own_answer() -> None:
    engine = make(ToyRunner())
    prompt = [5] * 20
    answer = ask(engine, prompt, max_tokens=30, ignore_eos=True)
    longer = prompt + tokens(answer) + [9, 9, 9]
    assert ask(engine, longer, max_tokens=5)[-1].num_cached_tokens == 48


def test_exact_prefix_does_not_take_generated_blocks_for_a_prompt() -> None:
    engine = make(ToyRunner(check_roles=True), exact_prefix=True)
    prompt = [5] * 20
    answer = ask(engine, prompt, max_tokens=30, ignore_eos=True)
    longer = prompt + tokens(answer) + [9, 9, 9]
    assert ask(engine, longer, max_tokens=5)[-1].num_cached_tokens == 16


def test_another_salt_hits_nothing() -> None:
    engine = make(ToyRunner())
    ask(engine, [1] * 40, salt="a", max_tokens=1)
    assert ask(engine, [1] * 40, salt="b", max_tokens=1)[-1].num_cached_tokens == 0
    assert ask(engine, [1] * 40, salt="a", max_tokens=1)[-1].num_cached_tokens == 32


def test_a_shared_prefix_lies_in_shared_blocks() -> None:
    engine = make(ToyRunner(num_blocks=64))
    ask(engine, [1] * 64, max_tokens=1)
    a, b = add(engine, [1] * 64 + [2], "a"), add(engine, [1] * 64 + [3], "b")
    engine.step()
    assert a.block_ids[:4] == b.block_ids[:4]
    assert a.block_ids[4:] != b.block_ids[4:]
    drain(engine)


def test_a_block_that_a_chunk_filled_in_part_is_not_taken_for_cached() -> None:
    engine = make(ToyRunner(), max_batch_tokens=30)
    request = add(engine, [1] * 80)
    engine.step()
    engine.abort(request)
    assert ask(engine, [1] * 80, max_tokens=1)[-1].num_cached_tokens == 16


def test_full_memory_evicts_the_least_recently_used_prefix() -> None:
    engine = make(ToyRunner(num_blocks=8))
    prompts = {name: [ord(name)] * 49 for name in "ab"}
    for name in "aba":
        ask(engine, prompts[name], max_tokens=1)
    ask(engine, [7] * 40, max_tokens=1)  # takes what is free, and then from the end of b
    assert ask(engine, prompts["a"], max_tokens=1)[-1].num_cached_tokens == 48
    assert ask(engine, prompts["b"], max_tokens=1)[-1].num_cached_tokens < 48


# --- aborts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_steps", [0, 1, 4, 500])
def test_an_abort_frees_the_blocks_in_every_state(num_steps: int) -> None:
    """Waiting, after one chunk of three, decoding, finished."""
    engine = make(ToyRunner(), max_batch_tokens=30)
    request = add(engine, [1] * 80, max_tokens=40, ignore_eos=True)
    for _ in range(num_steps):
        engine.step()
    states = {0: (0, 0), 1: (30, 0), 4: (81, 2), 500: (0, 40)}
    assert (request.num_computed, request.num_generated) == states[num_steps]
    engine.abort(request)
    engine.abort(request)
    engine.check_integrity()
    assert engine.scheduler.pool.num_free == 64
    assert not engine.has_work
    assert engine.step() == []


def test_an_abort_of_a_preempted_request_leaves_the_queue() -> None:
    engine = make(ToyRunner(num_blocks=6))
    first = add(engine, [1] * 30, "first", max_tokens=40, ignore_eos=True)
    second = add(engine, [2] * 30, "second", max_tokens=40, ignore_eos=True)
    while first.num_generated < 39:
        engine.step()
    assert second.num_preemptions == 1
    engine.abort(second)
    engine.check_integrity()
    assert [*drain(engine)] == [first]


# --- ends -----------------------------------------------------------------------------------------------------------


def script(*pieces: bytes | int) -> list[int]:
    return [token for piece in pieces for token in ([piece] if isinstance(piece, int) else piece)]


def test_the_end_token_ends_with_stop_and_counts() -> None:
    answer = ask(make(ToyRunner(script={"r": script(b"hi", EOS)})), [1])
    assert (text(answer), answer[-1].finish_reason, tokens(answer)) == ("hi", "stop", [*b"hi", EOS])
    check_books(answer, 1)


def test_an_ignored_end_token_does_not_end() -> None:
    answer = ask(make(ToyRunner(script={"r": script(b"a", EOS, b"b")})), [1], ignore_eos=True, max_tokens=3)
    assert (text(answer), answer[-1].finish_reason) == ("ab", "length")


def test_a_stop_token_ends_and_is_not_shown() -> None:
    answer = ask(make(ToyRunner(script={"r": script(b"ab!c")})), [1], stop_token_ids=(ord("!"),))
    assert (text(answer), answer[-1].finish_reason, len(tokens(answer))) == ("ab", "stop", 3)


def test_a_stop_string_ends_before_itself() -> None:
    answer = ask(make(ToyRunner(script={"r": script(b"one\nDEFX two DEFGHIJ three")})), [1], stop=("DEFGHIJ",))
    assert (text(answer), answer[-1].finish_reason) == ("one\nDEFX two ", "stop")
    check_books(answer, 1)


def test_text_held_for_a_stop_string_comes_with_the_end() -> None:
    answer = ask(make(ToyRunner(script={"r": script(b"so DEF", EOS)})), [1], stop=("DEFG",))
    assert text(answer) == "so DEF"
    answer = ask(make(ToyRunner(script={"r": script(b"so DEF")})), [1], stop=("DEFG",), max_tokens=6)
    assert (text(answer), answer[-1].finish_reason) == ("so DEF", "length")


def test_a_stop_string_complete_at_the_last_token_is_a_stop() -> None:
    answer = ask(make(ToyRunner(script={"r": script(b"so.")})), [1], stop=(".",), max_tokens=3)
    assert (text(answer), answer[-1].finish_reason) == ("so", "stop")


def test_characters_come_whole_and_one_that_the_end_cuts_off_never_does() -> None:
    smile = "🙂".encode()
    answer = ask(make(ToyRunner(script={"r": script(smile, smile, EOS)})), [1])
    assert [delta.text for delta in answer] == ["🙂", "🙂", ""]
    assert [len(delta.token_ids) for delta in answer] == [4, 4, 1]
    answer = ask(make(ToyRunner(script={"r": script(smile, smile)})), [1], max_tokens=6)
    assert (text(answer), answer[-1].finish_reason) == ("🙂", "length")
    check_books(answer, 1)


def test_no_tokens_asked_for_is_a_prompt_run_and_nothing_more() -> None:
    toy = ToyRunner()
    engine = make(toy, max_batch_tokens=30)
    answer = ask(engine, [1] * 40, max_tokens=0)
    assert answer == [Delta(text="", finish_reason="length", num_prompt_tokens=40)]
    assert toy.plans == [[("r", 0, 30)], [("r", 30, 10)]]
    assert ask(engine, [1] * 40, max_tokens=1)[-1].num_cached_tokens == 32, "the prompt is in the cache now"


def test_an_answer_runs_to_the_end_of_the_context() -> None:
    engine = make(ToyRunner(context=50))
    for max_tokens in (None, 40, 1000):
        answer = ask(engine, [1] * 30, max_tokens=max_tokens, ignore_eos=True)
        assert (answer[-1].finish_reason, answer[-1].num_generated_tokens) == ("length", 20)


# --- what can't be served -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "num_blocks", "limit"), [({}, 64, 200), ({"max_model_len": 100}, 64, 100), ({}, 4, 64)]
)
def test_what_can_never_fit_is_refused_with_both_numbers(options: dict[str, int], num_blocks: int, limit: int) -> None:
    """The model's context, the operator's limit, the whole pool: the smallest counts."""
    engine = make(ToyRunner(context=200, num_blocks=num_blocks), **options)
    with pytest.raises(PromptTooLong, match=f"{limit} tokens.*{limit}"):
        add(engine, [1] * limit)
    assert engine.info.context_length == limit
    answer = ask(engine, [1] * (limit - 1), ignore_eos=True)
    assert (answer[-1].num_generated_tokens, answer[-1].finish_reason) == (1, "length")


def test_an_empty_prompt_begins_with_bos() -> None:
    assert tokens(ask(make(ToyRunner()), [], max_tokens=4)) == answer_alone([BOS], 4)


def test_an_empty_prompt_without_bos_is_refused_and_the_next_request_works() -> None:
    engine = make(ToyRunner(tokenizer=ToyTokenizer(bos_id=None)))
    with pytest.raises(InvalidRequest, match="empty"):
        add(engine, [])
    assert tokens(ask(engine, [3], max_tokens=4)) == answer_alone([3], 4)


# --- failures -------------------------------------------------------------------------------------------------------


def test_a_failed_step_ends_the_running_requests_and_the_engine_goes_on() -> None:
    toy = ToyRunner()
    engine = make(toy, max_batch_size=1)
    first, second = add(engine, [1] * 40, "first", max_tokens=5), add(engine, [2] * 40, "second", max_tokens=5)
    engine.step()
    toy.fail = RuntimeError("out of memory")
    with pytest.raises(StepFailed, match="RuntimeError: out of memory") as caught:
        engine.step()
    outputs = engine.fail_running(caught.value)
    assert [(output.request, type(output.error)) for output in outputs] == [(first, StepFailed)]
    engine.check_integrity()
    assert tokens(deltas(drain(engine)[second])) == answer_alone([2] * 40, 5)


def test_blocks_of_a_failed_step_are_not_taken_for_cached() -> None:
    toy = ToyRunner()
    engine = make(toy)
    add(engine, [1] * 40, max_tokens=5)
    toy.fail = RuntimeError("no")
    with pytest.raises(StepFailed) as caught:
        engine.step()
    engine.fail_running(caught.value)
    assert ask(engine, [1] * 40, max_tokens=5)[-1].num_cached_tokens == 0


def test_one_answer_that_fails_does_not_take_the_batch_with_it() -> None:
    engine = make(ToyRunner(script={"bad": script(b"ok", 999)}))
    bad, good = add(engine, [1], "bad", max_tokens=5), add(engine, [2], "good", max_tokens=5)
    outputs = drain(engine)
    assert "no token 999" in str(outputs[bad][-1].error)
    assert text(deltas(outputs[bad][:-1])) == "ok"
    assert tokens(deltas(outputs[good])) == answer_alone([2], 5)


def test_a_runner_that_gives_too_few_tokens_is_noticed() -> None:
    toy = ToyRunner()
    engine = make(toy)
    add(engine, [1])
    toy.run = lambda plan: StepResult()  # type: ignore[method-assign]
    with pytest.raises(StepFailed, match="0 tokens for 1"):
        engine.step()


# --- chat and figures -----------------------------------------------------------------------------------------------


def test_a_conversation_becomes_a_prompt_without_a_second_bos() -> None:
    engine = make(ToyRunner())
    assert engine.encode_chat([{"role": "user", "content": "hi"}]) == list(b"<user>hi<assistant>")


def test_a_model_without_a_template_says_so() -> None:
    engine = make(ToyRunner(chat_template=None))
    with pytest.raises(TemplateError, match="no chat template"):
        engine.encode_chat([{"role": "user", "content": "hi"}])


def test_the_figures_add_up() -> None:
    toy = ToyRunner(num_blocks=9)
    engine = make(toy)
    for i in range(3):
        add(engine, [i] * 33, str(i), max_tokens=30, ignore_eos=True)
    drain(engine)
    ask(engine, [2] * 33, max_tokens=0)
    stats = engine.stats()
    assert stats.prompt_tokens_total == 4 * 33
    assert stats.cached_prompt_tokens_total in (16, 32)
    assert stats.generated_tokens_total == 90
    assert stats.steps_total == len(toy.plans)
    assert (stats.num_running, stats.num_waiting, stats.num_blocks, stats.num_free_blocks) == (0, 0, 9, 9)
    assert 0 < stats.num_cached_blocks <= 9


# --- swapping -------------------------------------------------------------------------------------------------------


def swapped_out(engine: Engine) -> tuple[Request, Request]:
    """Two requests that outgrow six blocks; the second has just been swapped out."""
    first = add(engine, [1] * 30, "first", max_tokens=40, ignore_eos=True)
    second = add(engine, [2] * 30, "second", max_tokens=40, ignore_eos=True)
    while not second.host_block_ids:
        engine.step()
        engine.check_integrity()
    return first, second


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_a_swapped_request_comes_back_and_computes_nothing_twice(prefix_caching: bool) -> None:
    toy = ToyRunner(num_blocks=6, num_host_blocks=10)
    engine = make(toy, prefix_caching=prefix_caching)
    first, second = swapped_out(engine)
    outputs = drain(engine)
    for request, prompt in ((first, [1] * 30), (second, [2] * 30)):
        assert request.token_ids[30:] == answer_alone(prompt, 40, ignore_eos=True)
        assert sum(num for plan in toy.plans for name, _, num in plan if name == request.request_id) == 30 + 39
        assert outputs[request][-1].delta is not None
    assert engine.stats().swapped_blocks_total == toy.transfers["out"] > 0
    assert toy.transfers["in"] > 0
    assert engine.scheduler.tables.host.num_free == 10


def test_a_swapped_request_may_be_aborted() -> None:
    engine = make(ToyRunner(num_blocks=6, num_host_blocks=10))
    first, second = swapped_out(engine)
    engine.abort(second)
    engine.check_integrity()
    assert engine.scheduler.tables.host.num_free == 10
    assert [*drain(engine)] == [first]


def test_without_room_in_host_memory_the_victim_is_computed_anew() -> None:
    toy = ToyRunner(num_blocks=6, num_host_blocks=1)
    engine = make(toy, prefix_caching=False)
    requests = [add(engine, [i] * 30, str(i), max_tokens=40, ignore_eos=True) for i in range(2)]
    drain(engine)
    assert engine.stats().preemptions_total > 0
    assert engine.stats().swapped_blocks_total == 0
    for i, request in enumerate(requests):
        assert request.token_ids[30:] == answer_alone([i] * 30, 40, ignore_eos=True)


# --- what comes beside the text -------------------------------------------------------------------------------------


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


def test_without_prefix_caching_nothing_is_hit_and_nothing_is_kept() -> None:
    engine = make(ToyRunner(), prefix_caching=False)
    for _ in range(2):
        answer = ask(engine, [1] * 40, max_tokens=5)
        assert (tokens(answer), answer[-1].num_cached_tokens) == (answer_alone([1] * 40, 5), 0)
    assert engine.stats().num_cached_blocks == 0


def test_a_request_without_logits_ends_alone() -> None:
    engine = make(ToyRunner(errors={"bad": 2}))
    bad, good = add(engine, [1], "bad", max_tokens=5, ignore_eos=True), add(engine, [2], "good", max_tokens=5)
    outputs = drain(engine)
    assert str(outputs[bad][-1].error) == "the logits are not numbers"
    assert tokens(deltas(outputs[bad][:-1])) == answer_alone([1], 2, ignore_eos=True)
    assert tokens(deltas(outputs[good])) == answer_alone([2], 5)


# --- grammars -------------------------------------------------------------------------------------------------------


def with_grammar(pattern: str, n: int = 1, **sampling: Any) -> GenerationRequest:
    return GenerationRequest(
        request_id="g", prompt_token_ids=[5] * 20, n=n, grammar=Grammar(kind="regex", source=pattern),
        sampling=SamplingParams(**{"seed": 1, "max_tokens": 100, **sampling}),
    )  # fmt: skip


def test_every_choice_follows_the_grammar_on_its_own_way() -> None:
    engine = make(ToyRunner())
    request = engine.add_request(with_grammar(r"[a-z]{3}-[0-9]{4}", n=3))
    answer = deltas(drain(engine)[request])
    texts = [text([delta for delta in answer if delta.index == index]) for index in range(3)]
    assert all(re.fullmatch(r"[a-z]{3}-[0-9]{4}", each) for each in texts)
    assert len(set(texts)) == 3
    assert [delta.finish_reason for delta in answer if delta.finish_reason] == ["stop"] * 3


def test_a_finished_grammar_ends_even_if_the_end_token_is_to_be_ignored() -> None:
    engine = make(ToyRunner())
    request = engine.add_request(with_grammar("abc", ignore_eos=True))
    assert text(deltas(drain(engine)[request])) == "abc"


def test_a_grammar_survives_preemption() -> None:
    engine = make(ToyRunner(num_blocks=6))
    requests = [
        engine.add_request(msgspec.structs.replace(with_grammar("[a-f]{45}", seed=i), request_id=str(i)))
        for i in range(2)
    ]
    outputs = drain(engine)
    assert engine.stats().preemptions_total > 0
    for request in requests:
        assert re.fullmatch("[a-f]{45}", text(deltas(outputs[request])))


def test_a_bad_grammar_is_refused_alone() -> None:
    engine = make(ToyRunner())
    with pytest.raises(InvalidRequest, match="regular expression") as caught:
        engine.add_request(with_grammar("(unclosed"))
    assert caught.value.param == "grammar"
    assert tokens(ask(engine, [3], max_tokens=4)) == answer_alone([3], 4)


def test_the_time_of_a_step_is_shared_by_the_tokens_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=1000)
    monkeypatch.setattr("engine.engine.time", SimpleNamespace(perf_counter_ns=lambda: next(clock)))  # a step takes 1 µs
    engine = make(ToyRunner(num_blocks=64), prefix_caching=False)
    long = add(engine, list(range(30)), "long", max_tokens=4, ignore_eos=True)
    short = add(engine, list(range(10)), "short", max_tokens=4, ignore_eos=True)
    engine.step()
    assert (long.compute_ns, short.compute_ns) == (750, 250)
    drain(engine)
    assert (long.compute_ns, short.compute_ns) == (750 + 3 * 500, 250 + 3 * 500)


def test_the_time_of_all_choices_is_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=1000)
    monkeypatch.setattr("engine.engine.time", SimpleNamespace(perf_counter_ns=lambda: next(clock)))
    engine = make(ToyRunner(num_blocks=64))
    params = SamplingParams(temperature=1.0, max_tokens=5, ignore_eos=True, seed=1)
    first = engine.add_request(GenerationRequest(request_id="r", prompt_token_ids=[1, 2, 3], n=3, sampling=params))
    drain(engine)
    assert 1000 * engine.stats().steps_total - first.compute_ns < 3 * engine.stats().steps_total  # but for fractions
