"""The engine itself: requests in, deltas out, one step at a time. Not thread-safe, knows no asyncio; see client.py.

>>> engine = Engine(EngineOptions(model="SmolLM2-135M-Instruct.Q4_1.gguf"))
>>> engine.add_request(GenerationRequest(request_id="1", prompt_token_ids=engine.tokenizer.encode("Once upon")))
>>> while engine.has_work:
...     for output in engine.step():
...         print(output.delta.text, end="")
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from engine.answer import Answer
from engine.errors import EngineError, StepFailed, TemplateError
from engine.plan import ModelRunner, Sample, StepPlan, StepResult, TokenTable
from engine.request import Request
from engine.scheduler import Scheduler
from engine.types import Delta, EngineInfo, EngineOptions, EngineStats, FinishReason, GenerationRequest
from engine.validation import check_options, validated


@dataclass(slots=True, frozen=True)
class Output:
    """What a step has for one request: a delta, or the error that ended this request alone."""

    request: Request
    delta: Delta | None = None
    error: EngineError | None = None


class Engine:
    """`runner` carries out the plans; by default `options.model` is loaded.

    Raises ModelLoadError if the model can't be used, ValueError if an option makes no sense.
    """

    def __init__(self, options: EngineOptions, runner: ModelRunner | None = None) -> None:
        check_options(options)
        self._runner = runner or _load_runner(options)
        self.tokenizer: TokenTable = self._runner.tokenizer
        num_slots = self._runner.num_blocks * self._runner.block_size
        context_length = min(self._runner.info.context_length, options.max_model_len or num_slots, num_slots)
        self.info: EngineInfo = msgspec.structs.replace(self._runner.info, context_length=context_length)
        self.scheduler = Scheduler(options, self._runner.num_blocks, self._runner.block_size)
        self._answers: dict[Request, Answer] = {}
        self._num_steps = 0
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_generated_tokens = 0

    def encode_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        """Token ids of a conversation in OpenAI's shape, up to where the answer begins. Raises TemplateError."""
        template = self._runner.chat_template
        if template is None:
            raise TemplateError("this model has no chat template; give it a plain prompt (/v1/completions)")
        # A template writes the BOS token itself, if the model wants one.
        return self.tokenizer.encode(template.render(messages, tools), add_bos=False)

    @property
    def has_work(self) -> bool:
        return bool(self._answers)

    def prepare(self, params: GenerationRequest) -> Request:
        """Validate a request; touches no state, so any thread may call it. Raises InvalidRequest, PromptTooLong."""
        context_length = self.info.context_length
        params = validated(
            params, max_length=context_length, vocab_size=self.info.vocab_size, bos_id=self.tokenizer.bos_id
        )
        num_prompt, max_tokens = len(params.prompt_token_ids), params.sampling.max_tokens
        max_length = context_length if max_tokens is None else min(context_length, num_prompt + max_tokens)
        return Request(params, list(params.prompt_token_ids), num_prompt, max_length=max_length)

    def add_request(self, params: GenerationRequest) -> Request:
        """Queue a request; `step` will have its deltas. Raises InvalidRequest, PromptTooLong."""
        return self.enqueue(self.prepare(params))

    def enqueue(self, request: Request) -> Request:
        """Queue what `prepare` made."""
        self.scheduler.add(request)
        self._answers[request] = Answer(request, self.tokenizer)
        return request

    def abort(self, request: Request) -> None:
        """Drop a request in any state and free its blocks; nothing more comes of it. A second call does nothing."""
        self._release(request, "abort")

    def step(self) -> list[Output]:
        """Run one batch. Raises StepFailed if the runner fails: `fail_running` then clears the way for the others."""
        plan = self.scheduler.schedule()
        result = self._run(plan)
        return list(self._postprocess(plan, result))

    def fail_running(self, error: StepFailed) -> list[Output]:
        """End every running request with the error: the KV of the failed step can't be trusted. Waiting ones stay."""
        outputs = []
        for request in list(self.scheduler.running):
            self._release(request, "abort")
            outputs.append(Output(request, error=StepFailed(str(error))))
        return outputs

    def stats(self) -> EngineStats:
        return EngineStats(
            num_running=len(self.scheduler.running),
            num_waiting=len(self.scheduler.waiting),
            num_blocks=self.scheduler.pool.num_blocks,
            num_free_blocks=self.scheduler.pool.num_free,
            num_cached_blocks=len(self.scheduler.cache),
            prompt_tokens_total=self._num_prompt_tokens,
            cached_prompt_tokens_total=self._num_cached_tokens,
            generated_tokens_total=self._num_generated_tokens,
            preemptions_total=self.scheduler.num_preemptions,
            steps_total=self._num_steps,
        )

    def check_integrity(self) -> None:
        """Assert that every block and every request is accounted for; call it between two steps."""
        self.scheduler.check_integrity()
        known = set(self.scheduler.running) | set(self.scheduler.waiting)
        assert known == set(self._answers), "the scheduler and the answers disagree about which requests are open"

    def _run(self, plan: StepPlan) -> StepResult:
        if not plan.sequences and not plan.transfers:
            return StepResult()
        try:
            result = self._runner.run(plan)
        except Exception as error:
            raise StepFailed(f"the model could not run a step: {type(error).__name__}: {error}") from error
        num_expected = sum(planned.samples for planned in plan.sequences)
        if len(result.samples) != num_expected:
            raise StepFailed(f"the model gave {len(result.samples)} tokens for {num_expected} sequences")
        self._num_steps += 1
        return result

    def _postprocess(self, plan: StepPlan, result: StepResult) -> Iterator[Output]:
        samples = iter(result.samples)
        for planned in plan.sequences:
            request = planned.request
            if planned.start == request.num_cached and not request.num_generated and not request.num_preemptions:
                self._num_prompt_tokens += request.num_prompt
                self._num_cached_tokens += request.num_cached
            self.scheduler.advance(planned)
            try:
                delta = self._answer(request, next(samples) if planned.samples else None)
            except Exception as error:  # one request's fault must not end the batch
                self._release(request, "abort")
                yield Output(request, error=EngineError(f"this answer failed: {type(error).__name__}: {error}"))
                continue
            if delta is None:
                continue
            if delta.finish_reason is not None:
                self._release(request, delta.finish_reason)
            yield Output(request, delta)

    def _answer(self, request: Request, sample: Sample | EngineError | None) -> Delta | None:
        if isinstance(sample, EngineError):
            raise sample
        if sample is not None:
            self._num_generated_tokens += 1
            request.token_ids.append(sample.token_id)
            return self._answers[request].push(sample.token_id)
        if request.num_pending == 0:
            return self._answers[request].end_without_tokens()
        return None

    def _release(self, request: Request, reason: FinishReason) -> None:
        if self._answers.pop(request, None) is not None:
            self.scheduler.release(request, reason)


def _load_runner(options: EngineOptions) -> ModelRunner:
    from engine.runner import Runner  # torch comes with it

    return Runner(options)
