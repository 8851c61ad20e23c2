"""What one step will run, and what came of it: the border between scheduler and runner. Knows no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from engine.errors import EngineError
from engine.request import Request
from engine.tools.format import ToolFormat
from engine.types import EngineInfo, TokenLogprobs


class PlannedSequence(msgspec.Struct, frozen=True, gc=False):
    """Run tokens [start, start + num_tokens) of `request`; their KV goes to the slots its block table names.

    `samples`: these tokens reach the end of `request.token_ids`, so the last one's logits choose the next token
    (never so for max_tokens = 0).
    """

    request: Request
    start: int
    num_tokens: int
    samples: bool


class Transfer(msgspec.Struct, frozen=True, gc=False):
    """Copy a whole block's KV: "copy" within the cache, "out" to host memory, "in" from there."""

    kind: Literal["copy", "out", "in"]
    source: int
    target: int


@dataclass(slots=True, frozen=True)
class StepPlan:
    """The transfers are carried out first, in their order; a plan may have nothing else."""

    sequences: list[PlannedSequence] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(planned.num_tokens for planned in self.sequences)


class Sample(msgspec.Struct, frozen=True, gc=False):
    token_id: int
    logprobs: TokenLogprobs | None = None


@dataclass(slots=True, frozen=True)
class StepResult:
    """samples: one for each planned sequence with `samples`, in plan order; an error ends that request alone.

    prompt_logprobs: for requests that want them, of the tokens after this step's rows, as far as they are the prompt's.
    embeddings: of requests with `pooling` whose prompt this step has finished. In the place of either, an error ends
    that request alone.
    """

    samples: list[Sample | EngineError] = field(default_factory=list)
    prompt_logprobs: dict[Request, list[TokenLogprobs] | EngineError] = field(default_factory=dict)
    embeddings: dict[Request, tuple[float, ...] | EngineError] = field(default_factory=dict)


class TokenTable(Protocol):
    """What the scheduling side needs of a tokenizer."""

    @property
    def eos_ids(self) -> frozenset[int]: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Ids of the special and control tokens, by name."""
        ...

    def encode(self, text: str, add_bos: bool | None = None) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...

    def token_bytes(self, token_id: int) -> bytes:
        """The raw bytes of a token; b"" for special and control tokens."""
        ...

    def bytes_after(self, previous: int | None, token_id: int) -> bytes:
        """What a token adds to the text after `previous`; None: at its beginning."""
        ...


class PromptTemplate(Protocol):
    """What the engine needs of a chat template."""

    @property
    def tool_format(self) -> ToolFormat: ...

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

    @property
    def num_host_blocks(self) -> int:
        """Blocks of host memory that preempted sequences can be swapped out to."""
        ...

    def run(self, plan: StepPlan) -> StepResult: ...
