"""The runner on the real model: right against the float32 definition, and the same bits whatever rides along."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from prompts import PROMPTS
from reference_llama import ReferenceLlama
from steps import generate, last, make_request, whole

from engine.errors import ModelLoadError
from engine.plan import PlannedSequence, StepPlan
from engine.runner import Runner
from engine.types import EngineOptions

# Logits by which the reference's favourite must lead before its loss would be an error. In the kernels bfloat16 moves
# the logits of a prompt's tokens by up to 0.6 of their 20 or so, int8 those of generated tokens by up to 1.9; float32
# moves them by 1e-4.
MARGINS = {
    ("bfloat16", "prompt"): 0.3,
    ("bfloat16", "generated"): 0.5,
    ("float32", "prompt"): 0.001,
    ("float32", "generated"): 0.001,
}
GOLDEN = {
    "What is the capital of France?": [
        *[504, 3575, 282, 4649, 314, 7042, 30, 2, 198, 2, 1, 9690, 198, 2, 198, 1, 4093, 198, 57, 5248, 3946, 288],
        *[7198, 253],
    ],
    "Write a haiku about the sea.": [
        *[504, 6147, 282, 260, 3426, 28, 253, 13879, 6122, 28, 198, 49, 9154, 303, 5082, 282, 260, 10393, 28, 198],
        *[49, 13151, 282, 260],
    ],
    "Explain what a hash table is.": [
        *[49, 15345, 3252, 314, 253, 940, 2678, 804, 281, 2583, 2092, 288, 4249, 284, 19662, 940, 281, 253, 15345],
        *[29, 2542, 5710, 30, 657],
    ],
}


@pytest.fixture(scope="module", params=["auto", "reference"])
def runner(request: pytest.FixtureRequest, smollm2_path: Path) -> Iterator[Runner]:
    """With the kernels this machine gives, and in plain torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOLLHOUSE_KERNELS", request.param)
        yield Runner(EngineOptions(model=str(smollm2_path), kv_cache_mb=160, max_batch_tokens=2048, num_threads=2))


@pytest.fixture(scope="module")
def reference_logits(smollm2_path: Path) -> torch.Tensor:
    """The definition's logits after the last four tokens of each of the fifty prompts, [50, 4, vocab]."""
    from engine.loader.gguf import load

    tokenizer = load(smollm2_path).tokenizer
    return ReferenceLlama(smollm2_path).logits([tokenizer.encode(prompt) for prompt in PROMPTS], last=4)


@pytest.mark.parametrize("role", ["prompt", "generated"])
def test_the_next_token_is_the_definitions_wherever_it_is_clear(
    runner: Runner, reference_logits: torch.Tensor, role: str
) -> None:
    margin, clear = MARGINS[runner.info.dtype, role], 0
    requests = []
    for index, prompt in enumerate(PROMPTS):
        tokens = runner.tokenizer.encode(prompt)
        requests.append(make_request(tokens, range(index * 4, index * 4 + 4)))
        if role == "generated":
            requests[-1].num_prompt = max(1, len(tokens) - 3)
    for step in range(4):  # a prompt chunk that ends four tokens early, then one token at a time, all fifty together
        plan = []
        for request in requests:
            end = len(request.token_ids) - 3 + step
            start = 0 if step == 0 else end - 1
            plan.append(PlannedSequence(request, start, end - start, samples=True))
        found = runner.logits(StepPlan(plan))
        wanted = reference_logits[:, step]
        top = wanted.topk(2, dim=1)
        is_clear = top.values[:, 0] - top.values[:, 1] > margin
        clear += int(is_clear.sum())
        assert torch.equal(found.argmax(dim=1)[is_clear], top.indices[is_clear, 0])
        assert (found - wanted).abs().max() < 4 * margin
    assert clear > 120  # of 200: the margin is not so wide that nothing is compared


@pytest.mark.parametrize("runner", ["reference"], indirect=True)
def test_the_first_24_greedy_tokens_are_golden(runner: Runner) -> None:
    """In float32: the kernels may choose otherwise where two tokens are nearly equal."""
    assert runner.chat_template is not None
    requests = []
    for index, question in enumerate(GOLDEN):
        prompt = runner.tokenizer.encode(runner.chat_template.render([{"role": "user", "content": question}]))
        requests.append(make_request(prompt, range(index * 5, index * 5 + 5)))
    assert generate(runner, requests, 24) == list(GOLDEN.values())


def test_a_token_has_the_same_bits_alone_and_in_any_batch(runner: Runner) -> None:
    sizes = range(2, 34) if runner.info.dtype == "bfloat16" else (2, 7, 8, 9, 17)  # torch is slow: the edges of eights
    requests = [make_request([100 + i, *range(50, 50 + i)], range(i * 3, i * 3 + 3)) for i in range(sizes[-1])]
    alone = []
    for request in requests:
        runner.run(StepPlan([whole(request)]))
        alone.append(runner.logits(StepPlan([last(request)]))[0])
    for size in sizes:
        together = runner.logits(StepPlan([last(request) for request in requests[:size]]))
        assert torch.equal(together, torch.stack(alone[:size])), f"batch of {size}"


def test_prompt_chunks_and_generated_tokens_share_a_step_and_keep_their_bits(runner: Runner) -> None:
    prompt = list(range(1000, 1090))
    generating = [make_request(list(range(7 * i, 7 * i + 20)), range(10 + 2 * i, 12 + 2 * i)) for i in range(3)]
    runner.run(StepPlan([whole(request) for request in generating]))
    alone = [runner.logits(StepPlan([last(request)]))[0] for request in generating]
    whole_prompt = runner.logits(StepPlan([whole(make_request(prompt, range(6)))]))[0]
    for chunk in (7, 16, 33, 64) if runner.info.dtype == "bfloat16" else (7, 33):
        request = make_request(prompt, range(20, 26))
        for start in range(0, len(prompt), chunk):
            count = min(chunk, len(prompt) - start)
            mine = PlannedSequence(request, start, count, samples=start + count == len(prompt))
            rows = runner.logits(StepPlan([*map(last, generating), mine]))
            assert torch.equal(rows[:3], torch.stack(alone))
        assert torch.equal(rows[3], whole_prompt), f"chunks of {chunk}"


@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33, 47, 48, 49])
def test_a_prefix_hit_gives_the_bits_of_a_miss(runner: Runner, length: int) -> None:
    prompt = list(range(2000, 2000 + length))
    miss = runner.logits(StepPlan([whole(make_request(prompt, [0, 1, 2, 3]))]))
    for shared in range(1, (length - 1) // 16 + 1):  # at least one token is always computed
        hit = make_request(prompt, [*range(shared), *range(10, 14)])
        assert torch.equal(runner.logits(StepPlan([whole(hit, 16 * shared)])), miss)


def test_a_prompt_run_token_by_token_has_the_bits_of_one_chunk(runner: Runner) -> None:
    prompt = list(range(300, 321))
    request = make_request(prompt, [5, 2, 9])
    for start in range(len(prompt)):
        row = runner.logits(StepPlan([PlannedSequence(request, start, 1, samples=True)]))
    assert torch.equal(row, runner.logits(StepPlan([whole(make_request(prompt, [6, 7, 8]))])))


def test_a_seed_gives_the_same_tokens_alone_and_among_others(runner: Runner) -> None:
    def run(companions: int) -> list[int]:
        seeded = make_request([500, 501, 502], [0, 1], temperature=1.0, seed=42)
        others = [make_request([600 + i], [2 + i], temperature=1.0, top_k=i, seed=i) for i in range(companions)]
        return generate(runner, [seeded, *others], 8)[0]

    alone = run(0)
    assert run(7) == alone
    assert len(set(alone)) > 1


def test_only_sequences_that_sample_give_a_token(runner: Runner) -> None:
    first, second = make_request([1, 2, 3], [0]), make_request([4, 5], [1])
    assert len(runner.run(StepPlan([PlannedSequence(first, 0, 2, samples=False), whole(second)])).samples) == 1
    assert runner.run(StepPlan([PlannedSequence(first, 0, 2, samples=False)])).samples == []
    assert runner.run(StepPlan([])).samples == []


def test_info_tells_the_model(runner: Runner) -> None:
    info = runner.info
    assert (info.architecture, info.context_length, info.vocab_size) == ("llama", 8192, 49152)
    assert info.num_parameters == 134_515_008
    assert info.has_chat_template
    assert runner.block_size == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_cache_mb": 0}, "raise kv_cache_mb"),
        ({"swap_space_gb": 1e7}, "lower them"),
        ({"device": "tpu9"}, "use auto, cpu or cuda"),
        ({"model": "/nowhere/model.gguf"}, "no such file"),
    ],
)
def test_options_that_cannot_be_met_say_what_would_help(
    smollm2_path: Path, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        Runner(EngineOptions(**{"model": str(smollm2_path), **change}))


def test_the_environment_chooses_the_kernels(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLHOUSE_KERNELS", "fastest")
    with pytest.raises(ModelLoadError, match="choose one of auto, reference, avx2, avx512, amx"):
        Runner(EngineOptions(model=str(smollm2_path)))
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
