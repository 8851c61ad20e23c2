"""Several answers to one prompt: the requests they become, and the best of them. Knows no blocks and no text."""

from dataclasses import dataclass, field

import msgspec

from engine.errors import InvalidRequest
from engine.request import Request, TokenMatcher
from engine.types import Delta, GenerationRequest

_SEEDS = 2**64


def check_choices(params: GenerationRequest, max_choices: int) -> None:
    """Raises InvalidRequest whose `param` names the field at fault."""
    for name, value in (("n", params.n), ("best_of", params.best_of)):
        if value is not None and not (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
            raise InvalidRequest(f"{name} must be an integer of at least 1, not {value!r}", name)
    if params.best_of is not None and params.best_of < params.n:
        raise InvalidRequest(f"best_of must be at least n = {params.n}, not {params.best_of}", "best_of")
    if num_choices(params) > max_choices:
        name = "n" if params.best_of is None else "best_of"
        raise InvalidRequest(f"{name} must be at most {max_choices} on this engine, not {num_choices(params)}", name)
    if params.pooling is not None and (num_choices(params) > 1 or params.grammar is not None):
        name = "grammar" if params.grammar is not None else "n"
        raise InvalidRequest(f"an embedding is not an answer: leave {name} out", name)


def num_choices(params: GenerationRequest) -> int:
    return params.best_of or params.n


def make_choices(params: GenerationRequest, max_length: int, matcher: TokenMatcher | None) -> Request:
    """The first choice of a validated request, with the others beside it in its `choices`.

    The first one alone computes the prompt; so only it must run all of it, if something is wanted of every token.
    """
    runs_whole_prompt = params.sampling.prompt_logprobs is not None or params.pooling == "mean"
    choices = [
        Request(
            _params_of(params, index),
            list(params.prompt_token_ids),
            len(params.prompt_token_ids),
            max_length=max_length,
            index=index,
            matcher=matcher.fork() if matcher is not None and index else matcher,
            uses_cached_prefix=not (runs_whole_prompt and index == 0),
            shows_logprobs=params.sampling.logprobs is not None,
        )
        for index in range(num_choices(params))
    ]
    if len(choices) > 1:
        for choice in choices:
            choice.group = choices
    return choices[0]


def _params_of(params: GenerationRequest, index: int) -> GenerationRequest:
    """Choice i draws as if it were alone with seed + i; to tell the best, the tokens' logprobs are needed."""
    sampling = params.sampling
    assert sampling.seed is not None, "validated requests have a seed"
    if index:
        seed = sampling.seed + index
        sampling = msgspec.structs.replace(sampling, seed=seed if seed < _SEEDS else seed - _SEEDS)
    if num_choices(params) > params.n and sampling.logprobs is None:
        sampling = msgspec.structs.replace(sampling, logprobs=0)
    return params if sampling is params.sampling else msgspec.structs.replace(params, sampling=sampling)


@dataclass(slots=True)
class BestOf:
    """Holds the answers back until all have ended, and then gives the `num_given` whose tokens were the likeliest."""

    num_given: int
    num_open: int
    shows_logprobs: bool
    _parts: dict[int, list[Delta]] = field(default_factory=dict)

    def push(self, delta: Delta) -> list[Delta]:
        """Nothing, until the last answer's last delta: then each given answer as one delta, the best with index 0."""
        self._parts.setdefault(delta.index, []).append(delta)
        self.num_open -= delta.finish_reason is not None
        if self.num_open:
            return []
        answers = [_joined(self._parts[index]) for index in sorted(self._parts)]
        answers.sort(key=_mean_logprob, reverse=True)
        given = [self._shown(answer, index) for index, answer in enumerate(answers[: self.num_given])]
        num_discarded = sum(answer.num_generated_tokens for answer in answers[self.num_given :])
        given[-1] = msgspec.structs.replace(given[-1], num_discarded_tokens=num_discarded)
        return given

    def _shown(self, answer: Delta, index: int) -> Delta:
        return msgspec.structs.replace(answer, index=index, logprobs=answer.logprobs if self.shows_logprobs else ())


def _mean_logprob(answer: Delta) -> float:
    return sum(each.logprob for each in answer.logprobs) / max(1, len(answer.logprobs))


def _joined(deltas: list[Delta]) -> Delta:
    return msgspec.structs.replace(
        deltas[-1],
        text="".join(delta.text for delta in deltas),
        token_ids=tuple(token_id for delta in deltas for token_id in delta.token_ids),
        logprobs=tuple(each for delta in deltas for each in delta.logprobs),
        prompt_logprobs=deltas[0].prompt_logprobs,  # every choice has them
    )
