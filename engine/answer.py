"""One answer in the making: sampled tokens go in, deltas come out. Knows no blocks and no batch."""

from engine.detokenizer import Detokenizer
from engine.plan import TokenTable
from engine.request import Request
from engine.stop import StopChecker
from engine.types import Delta, FinishReason


class Answer:
    def __init__(self, request: Request, tokenizer: TokenTable) -> None:
        sampling = request.params.sampling
        self._request = request
        self._end_ids = frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else tokenizer.eos_ids)
        self._detokenizer = Detokenizer(tokenizer.token_bytes)
        self._stop = StopChecker(sampling.stop)
        self._untold: list[int] = []  # tokens that no delta has reported yet

    def push(self, token_id: int) -> Delta | None:
        """Take the token that was just appended to the request; None while there is no text to show for it."""
        self._untold.append(token_id)
        if token_id in self._end_ids:
            return self._delta(self._flush(), "stop")
        text = self._stop.push(self._detokenizer.push(token_id))
        if self._stop.stopped:
            return self._delta(text, "stop")
        if len(self._request.token_ids) >= self._request.max_length:
            text += self._flush()
            return self._delta(text, "stop" if self._stop.stopped else "length")
        return self._delta(text, None) if text else None

    def end_without_tokens(self) -> Delta:
        """The answer to max_tokens = 0."""
        return self._delta("", "length")

    def _flush(self) -> str:
        return self._stop.push(self._detokenizer.flush()) + self._stop.flush()

    def _delta(self, text: str, reason: FinishReason | None) -> Delta:
        token_ids, self._untold = tuple(self._untold), []
        return Delta(
            text=text,
            token_ids=token_ids,
            finish_reason=reason,
            num_prompt_tokens=self._request.num_prompt,
            num_cached_tokens=self._request.num_cached,
            num_generated_tokens=self._request.num_generated,
        )
