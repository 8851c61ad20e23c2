"""A small deterministic language model in pure Python that checks every KV slot it reads.

The next token is a hash of all tokens before it. Each physical slot stores which token, at which position, after which
tokens was written to it, so that a wrong block table, a stale block or a bad prefix hit fails the step that reads it.
"""

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

from engine.plan import StepPlan
from engine.request import Request, Status
from engine.types import EngineInfo

EOS, BOS, VOCAB = 256, 257, 258
BLOCK = 16


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


class ToyTemplate:
    def render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> str:
        return "".join(f"<{message['role']}>{message['content']}" for message in messages) + "<assistant>"


@dataclass
class ToyRunner:
    """`script`: tokens to give instead, by request id. `fail`: raised by the next step. `step_s`: a step's duration."""

    num_blocks: int = 64
    context: int = 512
    max_batch_tokens: int = 10_000
    tokenizer: ToyTokenizer = field(default_factory=ToyTokenizer)
    script: dict[str, list[int]] = field(default_factory=dict)
    chat_template: ToyTemplate | None = field(default_factory=ToyTemplate)
    fail: Exception | None = None
    step_s: float = 0.0
    block_size: int = BLOCK
    check_roles: bool = False  # a hit must have been written in the same role, prompt or generated
    plans: list[list[tuple[str, int, int]]] = field(default_factory=list)  # what ran: request id, start, tokens

    def __post_init__(self) -> None:
        self.info = EngineInfo(
            name="toy", architecture="hash", context_length=self.context, vocab_size=VOCAB, num_parameters=0,
            dtype="bytes", device="cpu", has_chat_template=True,
        )  # fmt: skip
        self._slots: dict[tuple[int, int], tuple[int, int, bytes, bool | None]] = {}

    def run(self, plan: StepPlan) -> list[int]:
        time.sleep(self.step_s)
        if self.fail is not None:
            error, self.fail = self.fail, None
            raise error
        assert 0 < plan.num_tokens <= self.max_batch_tokens
        assert len({planned.request for planned in plan.sequences}) == len(plan.sequences)
        self.plans.append([(each.request.request_id, each.start, each.num_tokens) for each in plan.sequences])
        for planned in plan.sequences:
            assert planned.start == planned.request.num_computed
            self._write(planned.request, planned.start, planned.num_tokens)
        sampled = []
        for planned in plan.sequences:  # read when all have written: one that overwrote another's slots is found out
            tail = self._read(planned.request, planned.start + planned.num_tokens)
            if planned.samples:
                assert planned.start + planned.num_tokens == len(planned.request.token_ids)
                sampled.append(self._sample(planned.request, tail))
        return sampled

    def _slot(self, request: Request, position: int) -> tuple[int, int]:
        block_id = request.block_ids[position // BLOCK]
        assert 0 <= block_id < self.num_blocks
        return block_id, position % BLOCK

    def _content(self, request: Request, position: int, parent: bytes) -> tuple[int, int, bytes, bool | None]:
        token = request.token_ids[position]
        is_prompt = position < request.num_prompt if self.check_roles else None
        return token, position, chain(parent, token), is_prompt

    def _write(self, request: Request, start: int, num_tokens: int) -> None:
        assert request.status is Status.RUNNING
        assert num_tokens > 0
        tail = self._read(request, start)
        for position in range(start, start + num_tokens):
            content = self._content(request, position, tail)
            self._slots[self._slot(request, position)] = content
            tail = content[2]

    def _read(self, request: Request, end: int) -> bytes:
        tail = b""
        for position in range(end):
            content = self._content(request, position, tail)
            found = self._slots.get(self._slot(request, position))
            assert found == content, f"{request.request_id} at {position} reads {found}, not {content}"
            tail = content[2]
        return tail

    def _sample(self, request: Request, tail: bytes) -> int:
        script = self.script.get(request.request_id)
        if script is not None:
            return script[request.num_generated]
        sampling = request.params.sampling
        assert sampling.seed is not None
        return next_token(tail, sampling.seed if sampling.temperature else 0)
