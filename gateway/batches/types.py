"""What is known of a batch."""

from datetime import datetime
from typing import Literal

import msgspec

Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]
UNFINISHED: tuple[Status, ...] = ("validating", "in_progress", "finalizing", "cancelling")
WINDOW_S = 24 * 3600.0


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    tenant_id: str
    key_id: str  # in whose name its lines are asked
    endpoint: str  # "/v1/chat/completions"
    input_file_id: str
    created_at: datetime
    expires_at: datetime
    status: Status = "validating"
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: str | None = None  # JSON: what is wrong with the input file
    metadata: str | None = None  # JSON, the client's
    output_ttl_s: int | None = None
    num_lines: int = 0
    num_completed: int = 0
    num_failed: int = 0
    in_progress_at: datetime | None = None
    finalizing_at: datetime | None = None
    cancelling_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def unfinished(self) -> bool:
        return self.status in UNFINISHED


class Result(msgspec.Struct, frozen=True):
    """A line that needs no more asking."""

    line: int  # of the input file, from 1
    ok: bool
    answer: bytes  # a line of the output or of the error file, without its end


class LeaseLost(Exception):
    """Another gateway runs the batch by now: nothing that this one still does counts."""
