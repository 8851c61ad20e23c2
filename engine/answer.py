"""One answer in the making: samples go in, deltas come out. Knows no blocks and no batch."""

from engine.detokenizer import Detokenizer
from engine.plan import Sample, TokenTable
from engine.request import Request
from engine.stop import StopChecker
from engine.types import Delta, FinishReason, TokenLogprobs


class Answer:
    def __init__(self, request: Request, tokenizer: TokenTable) -> None:
        params = request.params
        sampling = params.sampling
        self._request = request
        # Under a grammar the end is part of what was asked for: there is nothing to go on with.
        ends_with_eos = not sampling.ignore_eos or params.grammar is not None
        self._end_ids = frozenset(sampling.stop_token_ids) | (tokenizer.eos_ids if ends_with_eos else frozenset())
        self._detokenizer = Detokenizer(tokenizer.bytes_after, request.token_ids[request.num_prompt - 1])
        self._stop = StopChecker(sampling.stop)
        self._shows_logprobs = sampling.logprobs is not None
        # What no delta has reported yet.
        self._untold: list[int] = []
        self._untold_logprobs: list[TokenLogprobs] = []
        self._prompt_logprobs: list[TokenLogprobs] = []
        self._num_prompt_logprobs = 0  # told and untold

    def push(self, sample: Sample) -> Delta | None:
        """Take the token that was just appended to the request; None while there is no text to show for it."""
        token_id = sample.token_id
        self._untold.append(token_id)
        if self._shows_logprobs:
            assert sample.logprobs is not None, "logprobs were asked for"
            self._untold_logprobs.append(sample.logprobs)
        if token_id in self._end_ids:
            return self._delta(self._stop.flush(), "stop")
        text = self._stop.push(self._detokenizer.push(token_id))
        if self._stop.stopped:
            return self._delta(text, "stop")
        if len(self._request.token_ids) >= self._request.max_length:
            return self._delta(text + self._stop.flush(), "length")
        return self._delta(text, None) if text else None

    def push_prompt_logprobs(self, start: int, logprobs: list[TokenLogprobs]) -> None:
        """Of the prompt's tokens from `start` + 1 on. What is known already, a recomputed prompt tells again."""
        new = logprobs[self._num_prompt_logprobs - start :]
        self._prompt_logprobs += new
        self._num_prompt_logprobs += len(new)

    def share_prompt_logprobs(self, other: "Answer") -> None:
        """Another choice for the same prompt has them from this one."""
        other._prompt_logprobs = list(self._prompt_logprobs)
        other._num_prompt_logprobs = self._num_prompt_logprobs

    def end_without_tokens(self, embedding: tuple[float, ...] | None = None) -> Delta:
        """The answer to max_tokens = 0, or the embedding of the prompt."""
        return self._delta("", "length" if embedding is None else "stop", embedding)

    def _delta(self, text: str, reason: FinishReason | None, embedding: tuple[float, ...] | None = None) -> Delta:
        request = self._request
        delta = Delta(
            text=text,
            index=request.index,
            token_ids=tuple(self._untold),
            logprobs=tuple(self._untold_logprobs),
            prompt_logprobs=tuple(self._prompt_logprobs),
            embedding=embedding,
            finish_reason=reason,
            num_prompt_tokens=request.num_prompt,
            num_cached_tokens=request.num_cached,
            num_generated_tokens=request.num_generated,
        )
        self._untold.clear()
        self._untold_logprobs.clear()
        self._prompt_logprobs.clear()
        return delta
