"""The engine itself: requests in, deltas out, one step at a time. Not thread-safe, knows no asyncio; see client.py.

>>> engine = Engine(EngineOptions(model="SmolLM2-135M-Instruct.Q4_1.gguf"))
>>> engine.add_request(GenerationRequest(request_id="1", prompt_token_ids=engine.tokenizer.encode("Once upon")))
>>> while engine.has_work:
...     for output in engine.step():
...         print(output.delta.text, end="")
"""

import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from engine.answer import Answer
from engine.choices import BestOf, check_choices, make_choices
from engine.errors import EngineError, StepFailed, SwitchedOff, TemplateError
from engine.plan import ModelRunner, PlannedSequence, Sample, StepPlan, StepResult, TokenTable
from engine.request import Request, Status, TokenMatcher
from engine.scheduler import Scheduler
from engine.tools.format import ToolFormat
from engine.types import (
    Delta,
    EngineInfo,
    EngineOptions,
    EngineStats,
    FinishReason,
    GenerationRequest,
    Grammar,
    LoadProgress,
)
from engine.validation import check_options, validated

if TYPE_CHECKING:
    from engine.grammar import GrammarCompiler

Outcome = TypeVar("Outcome")
_NO_TEMPLATE = "this model has no chat template; give it a plain prompt (/v1/completions)"


class Output(msgspec.Struct, frozen=True, gc=False):
    """What a step has for one request: a delta of one of its answers, or the error that ended it as a whole."""

    request: Request  # as `add_request` returned it
    delta: Delta | None = None
    error: EngineError | None = None
    is_last: bool = False  # nothing more comes of this request


class Engine:
    """`runner` carries out the plans; by default `options.model` is loaded.

    Raises ModelLoadError if the model can't be used, ValueError if an option makes no sense.
    """

    def __init__(
        self, options: EngineOptions, runner: ModelRunner | None = None, progress: LoadProgress | None = None
    ) -> None:
        check_options(options)
        self._runner = runner or _load_runner(options, progress)
        self.tokenizer: TokenTable = self._runner.tokenizer
        num_slots = self._runner.num_blocks * self._runner.block_size
        context_length = min(self._runner.info.context_length, options.max_model_len or num_slots, num_slots)
        self.info: EngineInfo = msgspec.structs.replace(self._runner.info, context_length=context_length)
        self.scheduler = Scheduler(
            options, self._runner.num_blocks, self._runner.block_size, self._runner.num_host_blocks
        )
        self._lark_grammars = options.lark_grammars
        self.max_choices: int = options.max_batch_size + options.max_waiting
        self._answers: dict[Request, Answer] = {}  # of every choice that has not ended
        self._best_of: dict[Request, BestOf] = {}  # by first choice
        self._num_steps = 0
        self._num_generated_tokens = 0

    def encode_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        """Token ids of a conversation in OpenAI's shape, up to where the answer begins. Raises TemplateError."""
        template = self._runner.chat_template
        if template is None:
            raise TemplateError(_NO_TEMPLATE)
        # A template writes the BOS token itself, if the model wants one.
        return self.tokenizer.encode(template.render(messages, tools), add_bos=False)

    @property
    def tool_format(self) -> ToolFormat:
        """How the model is told of tools, and how it calls them. Raises TemplateError."""
        if self._runner.chat_template is None:
            raise TemplateError(_NO_TEMPLATE)
        return self._runner.chat_template.tool_format

    @property
    def has_work(self) -> bool:
        return bool(self._answers)

    def prepare(self, params: GenerationRequest) -> Request:
        """Validate a request; touches no state, so any thread may call it. Raises InvalidRequest, PromptTooLong.

        A grammar is compiled here, which can take a while; EngineOverloaded if too many others are, too.
        """
        context_length = self.info.context_length
        params = validated(
            params, max_length=context_length, vocab_size=self.info.vocab_size, bos_id=self.tokenizer.bos_id
        )
        check_choices(params, self.max_choices)
        matcher = self._matcher(params.grammar) if params.grammar is not None else None
        num_prompt = len(params.prompt_token_ids)
        max_tokens = 0 if params.pooling is not None else params.sampling.max_tokens
        max_length = context_length if max_tokens is None else min(context_length, num_prompt + max_tokens)
        return make_choices(params, max_length, matcher)

    def add_request(self, params: GenerationRequest) -> Request:
        """Queue a request; `step` will have its deltas. Raises InvalidRequest, PromptTooLong."""
        return self.enqueue(self.prepare(params))

    def enqueue(self, request: Request) -> Request:
        """Queue what `prepare` made: the first choice; the others follow when it has computed their prompt."""
        for choice in request.choices:
            self._answers[choice] = Answer(choice, self.tokenizer)
        num_given, num_made = request.params.n, len(request.choices)
        if num_made > num_given:
            self._best_of[request] = BestOf(num_given, num_made, request.shows_logprobs)
        self.scheduler.add(request)
        return request

    def abort(self, request: Request) -> None:
        """Drop a request in any state, with all its choices, and free their blocks; nothing more comes of it.

        A second call does nothing.
        """
        self._best_of.pop(request, None)
        for choice in request.choices:
            self._release(choice, "abort")

    def step(self) -> list[Output]:
        """Run one batch, and share its time among the requests by the tokens that each had in it.

        Raises StepFailed if the runner fails: `fail_running` then clears the way for the others."""
        plan = self.scheduler.schedule()
        started_ns = time.perf_counter_ns()
        result = self._run(plan)
        _share(time.perf_counter_ns() - started_ns, plan)
        return self._postprocess(plan, result)

    def fail_running(self, error: StepFailed) -> list[Output]:
        """End every running request with the error: the KV of the failed step can't be trusted. Waiting ones stay."""
        failed = dict.fromkeys(each.first_choice for each in self.scheduler.running)
        for request in failed:
            self.abort(request)
        self.scheduler.distrust_last_plan()
        return [Output(request, error=StepFailed(str(error)), is_last=True) for request in failed]

    def stats(self) -> EngineStats:
        return EngineStats(
            num_running=len(self.scheduler.running),
            num_waiting=len(self.scheduler.waiting),
            num_blocks=self.scheduler.pool.num_blocks,
            num_free_blocks=self.scheduler.pool.num_free,
            num_cached_blocks=len(self.scheduler.cache),
            prompt_tokens_total=self.scheduler.num_prompt_tokens,
            cached_prompt_tokens_total=self.scheduler.num_cached_tokens,
            generated_tokens_total=self._num_generated_tokens,
            preemptions_total=self.scheduler.num_preemptions,
            swapped_blocks_total=self.scheduler.tables.num_swapped_blocks,
            steps_total=self._num_steps,
        )

    def check_integrity(self) -> None:
        """Assert that every block and every request is accounted for; call it between two steps."""
        self.scheduler.check_integrity()
        queued = {*self.scheduler.running, *self.scheduler.waiting}
        held_back = {each for each in self._answers if each.status is Status.NEW}
        assert queued | held_back == set(self._answers), "scheduler and answers disagree about which requests are open"
        for choice in held_back:
            assert choice.first_choice in queued, f"{choice.request_id} waits for a prompt that nobody computes"

    def _matcher(self, grammar: Grammar) -> TokenMatcher:
        if grammar.kind == "lark" and not self._lark_grammars:
            raise SwitchedOff("grammars in Lark's notation are switched off here (option lark_grammars)", "grammar")
        return self._grammars.compile(grammar)

    @cached_property
    def _grammars(self) -> "GrammarCompiler":
        from engine.grammar import GrammarCompiler  # numpy and llguidance come with it

        return GrammarCompiler(self.tokenizer, self.info.vocab_size)

    def _run(self, plan: StepPlan) -> StepResult:
        if not plan.sequences and not plan.transfers:
            return StepResult()
        try:
            result = self._runner.run(plan)
        except Exception as error:
            raise StepFailed(f"the model could not run a step: {type(error).__name__}: {error}") from error
        num_expected = sum([planned.samples for planned in plan.sequences])
        if len(result.samples) != num_expected:
            raise StepFailed(f"the model gave {len(result.samples)} tokens for {num_expected} sequences")
        self._num_steps += 1
        return result

    def _postprocess(self, plan: StepPlan, result: StepResult) -> list[Output]:
        outputs: list[Output] = []
        samples = iter(result.samples)
        for planned in plan.sequences:
            request = planned.request
            sample = next(samples) if planned.samples else None
            if request.status is not Status.RUNNING:  # another choice's error has just ended it
                continue
            self.scheduler.advance(planned)
            try:
                if planned.start < request.num_prompt:
                    self._advance_prompt(planned, result)
                delta = self._answer(request, sample, result)
            except Exception as error:  # one request's fault must not end the batch
                self.abort(request.first_choice)
                outputs.append(Output(request.first_choice, error=_as_engine_error(error), is_last=True))
                continue
            if delta is not None:
                self._hand_out(request, delta, outputs)
        return outputs

    def _advance_prompt(self, planned: PlannedSequence, result: StepResult) -> None:
        """A chunk of the prompt has run; after the last one the other choices can start."""
        request = planned.request
        answer = self._answers[request]
        if request in result.prompt_logprobs:
            answer.push_prompt_logprobs(planned.start, _or_raise(result.prompt_logprobs[request]))
        if request.num_computed < request.num_prompt:
            return
        request.uses_cached_prefix = True
        if request.index == 0 and request.group and request.group[1].status is Status.NEW:
            for choice in request.group[1:]:
                answer.share_prompt_logprobs(self._answers[choice])
            self.scheduler.add_choices(request)

    def _answer(self, request: Request, sample: Sample | EngineError | None, result: StepResult) -> Delta | None:
        if sample is None:
            if request.num_pending:
                return None
            embedding = _or_raise(result.embeddings[request]) if request.params.pooling is not None else None
            return self._answers[request].end_without_tokens(embedding)
        sample = _or_raise(sample)
        self._num_generated_tokens += 1
        request.token_ids.append(sample.token_id)
        if request.matcher is not None:
            request.matcher.accept(sample.token_id)
        return self._answers[request].push(sample)

    def _hand_out(self, request: Request, delta: Delta, outputs: list[Output]) -> None:
        first = request.first_choice
        is_last = False
        if delta.finish_reason is not None:
            self._release(request, delta.finish_reason)
            is_last = not any(choice in self._answers for choice in request.choices)
        if first not in self._best_of:
            outputs.append(Output(first, delta, is_last=is_last))
            return
        given = self._best_of[first].push(delta)
        outputs += [Output(first, each, is_last=each is given[-1]) for each in given]
        if is_last:
            del self._best_of[first]

    def _release(self, request: Request, reason: FinishReason) -> None:
        if self._answers.pop(request, None) is not None:
            self.scheduler.release(request, reason)


def _share(elapsed_ns: int, plan: StepPlan) -> None:
    num_tokens = plan.num_tokens
    for planned in plan.sequences:
        planned.request.first_choice.compute_ns += elapsed_ns * planned.num_tokens // num_tokens


def _or_raise(outcome: Outcome | EngineError) -> Outcome:
    if isinstance(outcome, EngineError):
        raise outcome
    return outcome


def _as_engine_error(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    return EngineError(f"this answer failed: {type(error).__name__}: {error}")


def _load_runner(options: EngineOptions, progress: LoadProgress | None) -> ModelRunner:
    from engine.runner import Runner  # torch comes with it

    return Runner(options, progress)
