"""What one step will run: the scheduler writes it, the runner carries it out. Knows no torch."""

from dataclasses import dataclass, field

from engine.request import Request


@dataclass(slots=True, frozen=True)
class PlannedSequence:
    """Run tokens [start, start + num_tokens) of `request`; their KV goes to the slots its block table names.

    `samples`: these tokens reach the end of `request.token_ids`, so the last one's logits choose the next token.
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
