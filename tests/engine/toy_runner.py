"""A small deterministic language model in pure Python that checks every KV slot it reads.

The next token is a hash of all tokens before it. Each physical slot stores which token, at which position, after which
tokens was written to it, so that a wrong block table, a stale block or a bad prefix hit fails the step that reads it.
"""

import functools
import hashlib
import itertools
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from engine.errors import EngineError
from engine.plan import PlannedSequence, Sample, StepPlan, StepResult, Transfer
from engine.request import Request, Status
from engine.tools.format import format_for
from engine.types import EngineInfo, Logprob, TokenLogprobs

EOS, BOS, VOCAB = 256, 257, 258
BLOCK = 16


@functools.lru_cache(maxsize=2**18)
def chain(parent: bytes, token: int) -> bytes:
    return hashlib.blake2b(parent + token.to_bytes(2, "little"), digest_size=8).digest()


def next_token(tail: bytes, seed: int = 0, eos_in: int = 97) -> int:
    """Mostly printable bytes; one in `eos_in` ends the answer."""
    value = int.from_bytes(hashlib.blake2b(tail + seed.to_bytes(8, "little"), digest_size=8).digest(), "little")
    return EOS if value % eos_in == 0 else 32 + value % 95


def answer_alone(
    prompt: list[int], max_tokens: int, context: int = 512, seed: int = 0, ignore_eos: bool = False
) -> list[int]:
    """The tokens that this model gives to `prompt`, written as a plain loop with no engine around it."""
    tail = b""
    for token in prompt:
        tail = chain(tail, token)
    answer: list[int] = []
    while len(answer) < min(max_tokens, context - len(prompt)):
        answer.append(next_token(tail, seed))
        if answer[-1] == EOS and not ignore_eos:
            break
        tail = chain(tail, answer[-1])
    return answer


class ToyTokenizer:
    """A token is a byte; 256 ends, 257 begins."""

    eos_ids = frozenset({EOS})
    special_tokens: ClassVar[dict[str, int]] = {"<eos>": EOS, "<bos>": BOS}

    def __init__(self, bos_id: int | None = BOS) -> None:
        self.bos_id = bos_id

    def encode(self, text: str, add_bos: bool | None = None) -> list[int]:
        return ([BOS] if add_bos else []) + list(text.encode())

    def decode(self, ids: list[int]) -> str:
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        if not 0 <= token_id < VOCAB:
            raise ValueError(f"there is no token {token_id}")
        return bytes([token_id]) if token_id < 256 else b""

    def bytes_after(self, previous: int | None, token_id: int) -> bytes:
        return self.token_bytes(token_id)


class ToyTemplate:
    tool_format = format_for("")

    def render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> str:
        return "".join(f"<{message['role']}>{message['content']}" for message in messages) + "<assistant>"


Content = tuple[int, int, bytes, bool]  # token, position, hash of all up to it, whether it was written as a prompt's


def logprob_of(tail: bytes, token: int) -> float:
    """What this model says of `token` after `tail`, as if it were the logarithm of a probability."""
    return -int.from_bytes(chain(tail, token)[:2], "little") / 4096


def logprobs_of(tail: bytes, token: int, num_top: int) -> TokenLogprobs:
    top = tuple(Logprob(each, logprob_of(tail, each)) for each in range(num_top))
    return TokenLogprobs(token, logprob_of(tail, token), top)


def tails_of(tokens: list[int]) -> list[bytes]:
    """The hash of what stands before each token, and of all of them."""
    return list(itertools.accumulate(tokens, chain, initial=b""))


def prompt_logprobs_alone(prompt: list[int], num_top: int) -> list[TokenLogprobs]:
    """Of each token but the first."""
    return [logprobs_of(tail, token, num_top) for tail, token in zip(tails_of(prompt)[1:-1], prompt[1:], strict=True)]


@dataclass
class ToyRunner:
    """`script`: tokens to give instead, by request id. `errors`: which generated token fails, by request id.

    `fail`: raised by the next step; if `fail_with` is a kind of transfer, by the next step that has one.
    `step_s`: a step's duration.
    """

    num_blocks: int = 64
    num_host_blocks: int = 0
    context: int = 512
    max_batch_tokens: int = 10_000
    tokenizer: ToyTokenizer = field(default_factory=ToyTokenizer)
    script: dict[str, list[int]] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    chat_template: ToyTemplate | None = field(default_factory=ToyTemplate)
    fail: Exception | None = None
    fail_with: str = ""
    step_s: float = 0.0
    block_size: int = BLOCK
    check_roles: bool = False  # a hit must have been written in the same role, prompt or generated
    plans: list[list[tuple[str, int, int]]] = field(default_factory=list)  # what ran: request id, start, tokens
    transfers: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.info = EngineInfo(
            name="toy", architecture="hash", context_length=self.context, vocab_size=VOCAB, num_parameters=0,
            dtype="bytes", device="cpu", has_chat_template=True,
        )  # fmt: skip
        self._blocks: dict[int, list[Content | None]] = {i: [None] * BLOCK for i in range(self.num_blocks)}
        self._host: dict[int, list[Content | None]] = {i: [None] * BLOCK for i in range(self.num_host_blocks)}
        self._roles: dict[Request, list[bool]] = {}
        self._sums: dict[Request, list[int]] = {}

    def run(self, plan: StepPlan) -> StepResult:
        time.sleep(self.step_s)
        if self.fail is not None and (not self.fail_with or self.fail_with in {each.kind for each in plan.transfers}):
            error, self.fail = self.fail, None
            raise error
        assert plan.transfers or plan.sequences
        assert plan.num_tokens <= self.max_batch_tokens
        assert len({planned.request for planned in plan.sequences}) == len(plan.sequences)
        self.plans.append([(each.request.request_id, each.start, each.num_tokens) for each in plan.sequences])
        for transfer in plan.transfers:
            self._transfer(transfer)
        for planned in plan.sequences:
            assert planned.start == planned.request.num_computed
            self._write(planned.request, planned.start, planned.num_tokens)
        result = StepResult()
        for planned in plan.sequences:  # read when all have written: one that overwrote another's slots is found out
            request, end = planned.request, planned.start + planned.num_tokens
            tails = self._read(request, end)
            if planned.samples:
                assert end == len(request.token_ids)
                result.samples.append(self._sample(request, tails[-1]))
            if planned.start < request.num_prompt:
                self._look_at_prompt(planned, tails, result)
        return result

    def _transfer(self, transfer: Transfer) -> None:
        source = self._host if transfer.kind == "in" else self._blocks
        target = self._host if transfer.kind == "out" else self._blocks
        target[transfer.target] = list(source[transfer.source])
        self.transfers[transfer.kind] += 1

    def _write(self, request: Request, start: int, num_tokens: int) -> None:
        assert request.status is Status.RUNNING
        assert num_tokens > 0
        tail = self._read(request, start)[-1]
        for position in range(start, start + num_tokens):
            token = request.token_ids[position]
            tail = chain(tail, token)
            content = (token, position, tail, position < request.num_prompt)
            self._blocks[request.block_ids[position // BLOCK]][position % BLOCK] = content

    def _read(self, request: Request, end: int) -> list[bytes]:
        """The hashes of the tokens before each position up to `end`."""
        tails = [b""]
        roles = self._roles.setdefault(request, [])
        for position in range(end):
            token = request.token_ids[position]
            is_prompt = position < request.num_prompt
            found = self._blocks[request.block_ids[position // BLOCK]][position % BLOCK]
            tails.append(chain(tails[-1], token))
            assert found is not None
            assert found[:3] == (token, position, tails[-1]), f"{request.request_id} at {position} reads {found}"
            if self.check_roles or not is_prompt:
                assert found[3] == is_prompt, f"{request.request_id} at {position} reads another role's KV"
            if position == len(roles):
                roles.append(found[3])
            if position >= request.num_cached // BLOCK * BLOCK:
                assert found[3] == roles[position], f"{request.request_id} at {position} reads other bits than before"
        return tails

    def _sample(self, request: Request, tail: bytes) -> Sample | EngineError:
        if self.errors.get(request.request_id) == request.num_generated:
            return EngineError("the logits are not numbers")
        sampling = request.params.sampling
        script = self.script.get(request.request_id)
        if script is not None:
            token = script[request.num_generated]
        else:
            assert sampling.seed is not None
            token = next_token(tail, sampling.seed if sampling.temperature else 0)
        if request.matcher is not None:
            mask = np.zeros(-(-VOCAB // 32), np.int32)
            request.matcher.fill_mask(mask)
            allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
            token = int(allowed[token % len(allowed)])
        return Sample(token, None if sampling.logprobs is None else logprobs_of(tail, token, sampling.logprobs))

    def _look_at_prompt(self, planned: PlannedSequence, tails: list[bytes], result: StepResult) -> None:
        request = planned.request
        end = min(planned.start + planned.num_tokens, request.num_prompt)
        num_top = request.params.sampling.prompt_logprobs
        if num_top is not None:
            result.prompt_logprobs[request] = [
                logprobs_of(tails[position], request.token_ids[position], num_top)
                for position in range(planned.start + 1, min(end + 1, request.num_prompt))
            ]
        if request.params.pooling == "mean":
            rows = self._sums.setdefault(request, [])
            del rows[planned.start :]
            assert len(rows) == planned.start, "the mean lacks rows"
            rows += request.token_ids[planned.start : end]
            if end == request.num_prompt:
                result.embeddings[request] = (sum(rows) / len(rows),)
        if request.params.pooling == "last" and end == request.num_prompt:
            result.embeddings[request] = tuple(map(float, tails[end]))
