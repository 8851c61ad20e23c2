"""The prefix cache through the whole engine: what is hit, shared, kept and evicted."""

import pytest
from toy_engine import add, ask, drain, make, tokens
from toy_runner import ToyRunner, answer_alone


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


def test_without_prefix_caching_nothing_is_hit_and_nothing_is_kept() -> None:
    engine = make(ToyRunner(), prefix_caching=False)
    for _ in range(2):
        answer = ask(engine, [1] * 40, max_tokens=5)
        assert (tokens(answer), answer[-1].num_cached_tokens) == (answer_alone([1] * 40, 5), 0)
    assert engine.stats().num_cached_blocks == 0
