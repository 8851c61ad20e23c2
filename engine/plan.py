"""What one step will run: the scheduler writes it, the runner carries it out. Knows no torch."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.request import Request
from engine.types import EngineInfo


@dataclass(slots=True, frozen=True)
class PlannedSequence:
    """Run tokens [start, start + num_tokens) of `request`; their KV goes to the slots its block table names.

    `samples`: these tokens reach the end of `request.token_ids`, so the last one's logits choose the next token
    (never so for max_tokens = 0).
    """

    request: Request
    start: int
    num_tokens: int
    samples: bool


@dataclass(slots=True, frozen=True)
class StepPlan:
    sequences: list[PlannedSequence] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(planned.num_tokens for planned in self.sequences)


class TokenTable(Protocol):
    """What the scheduling side needs of a tokenizer."""

    @property
    def eos_ids(self) -> frozenset[int]: ...

    @property
    def bos_id(self) -> int | None: ...

    def encode(self, text: str, add_bos: bool | None = None) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...

    def token_bytes(self, token_id: int) -> bytes:
        """The raw bytes of a token; b"" for special and control tokens."""
        ...


class PromptTemplate(Protocol):
    """What the engine needs of a chat template."""

    def render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> str: ...


class ModelRunner(Protocol):
    """What carries plans out: `engine.runner.Runner`, or a toy in tests."""

    @property
    def info(self) -> EngineInfo: ...

    @property
    def tokenizer(self) -> TokenTable: ...

    @property
    def chat_template(self) -> PromptTemplate | None: ...

    @property
    def num_blocks(self) -> int: ...

    @property
    def block_size(self) -> int: ...

    def run(self, plan: StepPlan) -> list[int]:
        """One sampled token id for each planned sequence with `samples`, in plan order."""
        ...
