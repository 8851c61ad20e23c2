"""Whatever arrives, shares, forks, fails, is aborted, preempted or swapped: each request gets what it gets alone.

After every step the books are checked, and the toy model checks what lies in every slot that it reads.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_runner import EOS, ToyRunner, answer_alone, logprob_of, prompt_logprobs_alone, tails_of

from engine.engine import Engine, Output
from engine.errors import EngineError, StepFailed
from engine.request import Request
from engine.types import Delta, EngineOptions, GenerationRequest, Pooling, SamplingParams

CONTEXT = 120


@dataclass(frozen=True)
class Arrival:
    stem: int  # arrivals of one stem share a prefix
    length: int
    max_tokens: int
    seed: int
    num_continued: int = 0  # tokens of the answer to another prompt that are part of this one: a conversation goes on
    salt: str = ""
    key: str = ""
    priority: int = 0
    delay: int = 0  # steps since the arrival before
    aborted_after: int | None = None  # steps after its own arrival
    n: int = 1
    num_more: int = 0  # answers beyond n that best_of makes
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    pooling: Pooling | None = None
    fails_at: int | None = None  # the generated token that has no logits

    @property
    def prompt(self) -> list[int]:
        first = [self.stem] * (self.length - 1) + [self.seed]
        return first + answer_alone(first, self.num_continued, seed=self.seed)

    @property
    def num_choices(self) -> int:
        return self.n + self.num_more

    def request(self, name: str) -> GenerationRequest:
        return GenerationRequest(
            request_id=name,
            prompt_token_ids=self.prompt,
            sampling=SamplingParams(
                max_tokens=self.max_tokens,
                seed=self.seed,
                logprobs=self.logprobs,
                prompt_logprobs=self.prompt_logprobs,
            ),
            n=self.n,
            best_of=self.num_choices if self.num_more else None,
            pooling=self.pooling,
            cache_salt=self.salt,
            fairness_key=self.key,
            priority=self.priority,
        )


@dataclass
class History:
    """An engine, what came of each request, and the checks."""

    engine: Engine
    toy: ToyRunner
    arrivals: dict[Request, Arrival] = field(default_factory=dict)
    outputs: dict[Request, list[Output]] = field(default_factory=dict)
    failed: set[Request] = field(default_factory=set)
    aborted: set[Request] = field(default_factory=set)

    def arrive(self, arrival: Arrival) -> Request:
        name = str(len(self.arrivals))
        if arrival.fails_at is not None:
            self.toy.errors[name] = arrival.fails_at
        request = self.engine.add_request(arrival.request(name))
        self.arrivals[request] = arrival
        self.outputs[request] = []
        return request

    @property
    def open_requests(self) -> list[Request]:
        ended = {request for request, outputs in self.outputs.items() if outputs and outputs[-1].is_last}
        return [request for request in self.arrivals if request not in ended and request not in self.aborted]

    def abort(self, request: Request) -> None:
        if not any(output.is_last for output in self.outputs[request]):
            self.aborted.add(request)
        self.engine.abort(request)
        self.engine.abort(request)
        self.engine.check_integrity()

    def step(self) -> None:
        try:
            outputs = self.engine.step()
        except StepFailed as error:
            if "RuntimeError: broken" not in str(error):  # not what the test broke
                raise
            outputs = self.engine.fail_running(error)
            self.failed.update(output.request for output in outputs)
        for output in outputs:
            assert output.request not in self.aborted
            self.outputs[output.request].append(output)
        self.engine.check_integrity()

    def check(self) -> None:
        assert not self.engine.has_work
        self.engine.check_integrity()
        assert self.engine.scheduler.pool.num_free == self.engine.scheduler.pool.num_blocks
        assert self.engine.scheduler.tables.host.num_free == self.toy.num_host_blocks
        for request, arrival in self.arrivals.items():
            outputs = self.outputs[request]
            ended = [output.is_last for output in outputs]
            assert ended[:-1] == [False] * (len(ended) - 1), "something came after the end"
            assert ended[-1:] == ([] if request in self.aborted and not ended else [request not in self.aborted])
            if request in self.failed:
                assert isinstance(outputs[-1].error, StepFailed)
            elif request not in self.aborted:
                check_answers(arrival, outputs)


def check_answers(arrival: Arrival, outputs: list[Output]) -> None:
    deltas = [output.delta for output in outputs if output.delta is not None]
    assert all(delta.num_prompt_tokens == len(arrival.prompt) for delta in deltas)
    if arrival.pooling is not None:
        assert [delta.embedding for delta in deltas] == [embedding_alone(arrival)]
        assert (deltas[0].finish_reason, deltas[0].token_ids) == ("stop", ())
        return
    alone = [
        answer_alone(arrival.prompt, arrival.max_tokens, CONTEXT, arrival.seed + i) for i in range(arrival.num_choices)
    ]
    if arrival.fails_at is not None and any(len(answer) > arrival.fails_at for answer in alone):
        assert isinstance(outputs[-1].error, EngineError)
        assert not isinstance(outputs[-1].error, StepFailed)
        return
    if arrival.num_more:
        best = sorted(alone, key=lambda answer: mean_logprob(arrival.prompt, answer), reverse=True)
        given, discarded = best[: arrival.n], best[arrival.n :]
        assert [delta.index for delta in deltas] == list(range(arrival.n)), "each answer whole, at the end"
        assert deltas[-1].num_discarded_tokens == sum(map(len, discarded))
    else:
        given = alone
    for index, answer in enumerate(given):
        check_answer(arrival, [delta for delta in deltas if delta.index == index], answer)


def check_answer(arrival: Arrival, deltas: list[Delta], expected: list[int]) -> None:
    assert [token for delta in deltas for token in delta.token_ids] == expected
    assert "".join(delta.text for delta in deltas) == bytes(token for token in expected if token != EOS).decode()
    assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish_reason == ("stop" if EOS in expected else "length")
    assert deltas[-1].num_generated_tokens == len(expected)
    logprobs = [each for delta in deltas for each in delta.logprobs]
    if arrival.logprobs is None:
        assert logprobs == []
    else:
        assert [each.logprob for each in logprobs] == answer_logprobs(arrival.prompt, expected)
        assert all(len(each.top) == arrival.logprobs for each in logprobs)
    if arrival.prompt_logprobs is not None:
        assert list(deltas[0].prompt_logprobs) == prompt_logprobs_alone(arrival.prompt, arrival.prompt_logprobs)
    assert all(delta.prompt_logprobs == () for delta in deltas[1:])


def answer_logprobs(prompt: list[int], answer: list[int]) -> list[float]:
    tails = tails_of(prompt + answer)
    return [logprob_of(tails[len(prompt) + i], token) for i, token in enumerate(answer)]


def mean_logprob(prompt: list[int], answer: list[int]) -> float:
    return sum(answer_logprobs(prompt, answer)) / max(1, len(answer))


def embedding_alone(arrival: Arrival) -> tuple[float, ...]:
    if arrival.pooling == "mean":
        return (sum(arrival.prompt) / len(arrival.prompt),)
    return tuple(map(float, tails_of(arrival.prompt)[-1]))


plain = st.builds(
    Arrival,
    stem=st.integers(0, 2),
    length=st.one_of(st.integers(1, 70), st.sampled_from([16, 17, 32, 33, 48, 64])),
    max_tokens=st.integers(0, 40),
    salt=st.sampled_from(["", "other"]),
    key=st.sampled_from(["x", "y", "z"]),
    priority=st.integers(0, 1),
    delay=st.integers(0, 4),
    aborted_after=st.one_of(st.none(), st.none(), st.integers(0, 25)),
    seed=st.integers(0, 3),
)
arrivals = st.builds(
    lambda arrival, changes: Arrival(**{**vars(arrival), **changes}),
    plain,
    st.one_of(
        st.just({}),
        st.fixed_dictionaries({"n": st.integers(1, 5)}),
        st.fixed_dictionaries({"num_continued": st.integers(1, 40)}),
        st.fixed_dictionaries({"n": st.integers(1, 3), "num_more": st.integers(1, 3)}),
        st.fixed_dictionaries(
            {"logprobs": st.integers(0, 2), "prompt_logprobs": st.integers(0, 2), "n": st.integers(1, 2)}
        ),
        st.fixed_dictionaries({"pooling": st.sampled_from(["last", "mean"])}),
        st.fixed_dictionaries({"fails_at": st.integers(0, 20), "n": st.integers(1, 2)}),
    ),
)
engines = st.fixed_dictionaries(
    {
        "num_blocks": st.integers(8, 24),
        "num_host_blocks": st.sampled_from([0, 0, 5, 40]),
        "max_batch_tokens": st.integers(5, 80),
        "max_batch_size": st.integers(1, 8),
        "exact_prefix": st.booleans(),
        "prefix_caching": st.sampled_from([True, True, False]),
    }
)


def new_history(num_blocks: int, num_host_blocks: int, **options: Any) -> History:
    toy = ToyRunner(
        num_blocks=num_blocks,
        num_host_blocks=num_host_blocks,
        context=CONTEXT,
        max_batch_tokens=options["max_batch_tokens"],
        check_roles=options["exact_prefix"],
    )
    return History(Engine(EngineOptions(model="toy", **options), toy), toy)


@settings(max_examples=200, deadline=None)
@given(
    coming=st.lists(arrivals, min_size=1, max_size=14),
    engine=engines,
    fails_at=st.one_of(st.none(), st.integers(0, 60)),
)
def test_each_request_gets_what_it_gets_alone_and_no_block_leaks(
    coming: list[Arrival], engine: dict[str, Any], fails_at: int | None
) -> None:
    history = new_history(**engine)
    aborts: dict[int, list[Request]] = {}
    due = [sum(each.delay for each in coming[: i + 1]) for i in range(len(coming))]
    step = 0
    while history.engine.has_work or step <= due[-1]:
        for when, each in zip(due, coming, strict=True):
            if when == step:
                request = history.arrive(each)
                if each.aborted_after is not None:
                    aborts.setdefault(step + each.aborted_after, []).append(request)
        for request in aborts.get(step, []):
            history.abort(request)
        if step == fails_at:
            history.toy.fail = RuntimeError("broken")
        history.step()
        step += 1
        assert step < 5000
    history.check()


def test_a_long_life_uses_everything() -> None:
    """Thousands of steps at saturation, with all that can happen; the counters say that it did."""
    rng = random.Random(7)
    history = new_history(
        num_blocks=22,
        num_host_blocks=12,
        max_batch_tokens=40,
        max_batch_size=6,
        exact_prefix=False,
        prefix_caching=True,
    )
    seen: Counter[str] = Counter()
    for _ in range(3000):
        open_requests = history.open_requests
        if len(open_requests) < 12 and rng.random() < 0.5:
            history.arrive(
                Arrival(
                    stem=rng.randrange(4), length=rng.choice([1, 15, 16, 17, 32, 33, 48, 60]), seed=rng.randrange(5),
                    max_tokens=rng.randrange(50), n=rng.choice([1, 1, 1, 2, 4]), num_more=2 * (rng.random() < 0.1),
                    num_continued=rng.choice([0, 0, 20, 35]), key=rng.choice("aab"), priority=rng.choice([0, 1, 1]),
                    prompt_logprobs=rng.choice([None, None, None, 1]),
                )
            )  # fmt: skip
        if open_requests and rng.random() < 0.02:
            history.abort(rng.choice(open_requests))
            seen["abort"] += 1
        if rng.random() < 0.003:
            history.toy.fail = RuntimeError("broken")
            seen["failure"] += 1
        if history.engine.has_work:
            history.step()
    while history.engine.has_work:
        history.step()
    history.check()
    stats = history.engine.stats()
    assert stats.preemptions_total > 100
    assert stats.cached_prompt_tokens_total > 1000
    assert all(history.toy.transfers[kind] > 50 for kind in ("copy", "in", "out"))
    assert seen["abort"] > 10
    assert seen["failure"] > 3
    assert len(history.arrivals) > 200


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("kind", ["out", "in", "copy"])
def test_a_broken_step_takes_no_waiting_request_with_it(kind: str, prefix_caching: bool) -> None:
    """What a failed plan would have copied out to host memory is computed anew."""
    history = new_history(
        num_blocks=9, num_host_blocks=50, max_batch_tokens=40, max_batch_size=4, exact_prefix=True,
        prefix_caching=prefix_caching,
    )  # fmt: skip
    for i in range(4):
        history.arrive(Arrival(stem=i, length=30, max_tokens=50, seed=i, n=1 + i % 2))
    history.toy.fail, history.toy.fail_with = RuntimeError("broken"), kind
    while history.engine.has_work:
        history.step()
    history.check()
    assert 0 < len(history.failed) < 4
