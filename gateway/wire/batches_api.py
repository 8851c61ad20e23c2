"""POST /v1/batches parsed and checked, and OpenAI's object of a batch."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.batches.types import Batch
from gateway.wire.body import decode_body, invalid

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
MAX_PAIRS, MAX_KEY, MAX_VALUE = 16, 64, 512  # of metadata; OpenAI's


class _ExpiresAfter(msgspec.Struct):
    anchor: Literal["created_at"]
    seconds: Annotated[int, Meta(ge=3600, le=2_592_000)]


class BatchRequest(msgspec.Struct):
    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: _ExpiresAfter | None = None


_decoder = msgspec.json.Decoder(BatchRequest)


def parse_batch(raw: bytes) -> BatchRequest:
    """Raises InvalidRequestError."""
    _, wanted = decode_body(raw, _decoder)
    if wanted.endpoint not in ENDPOINTS:
        raise invalid("endpoint", f"{wanted.endpoint[:100]!r} is not one of {', '.join(ENDPOINTS)}")
    if wanted.completion_window != "24h":
        raise invalid("completion_window", "expected '24h'")
    pairs = wanted.metadata or {}
    if len(pairs) > MAX_PAIRS or any(len(key) > MAX_KEY or len(value) > MAX_VALUE for key, value in pairs.items()):
        raise invalid("metadata", f"at most {MAX_PAIRS} pairs of {MAX_KEY} and {MAX_VALUE} characters")
    return wanted


def batch_object(batch: Batch) -> dict[str, Any]:
    def ended(status: str) -> int | None:
        return _seconds(batch.ended_at) if batch.status == status else None

    errors = None if batch.errors is None else {"object": "list", "data": msgspec.Raw(batch.errors.encode())}
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": errors,
        "input_file_id": batch.input_file_id,
        "completion_window": "24h",
        "status": batch.status,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": _seconds(batch.created_at),
        "in_progress_at": _seconds(batch.in_progress_at),
        "expires_at": _seconds(batch.expires_at),
        "finalizing_at": _seconds(batch.finalizing_at),
        "completed_at": ended("completed"),
        "failed_at": ended("failed"),
        "expired_at": ended("expired"),
        "cancelling_at": _seconds(batch.cancelling_at),
        "cancelled_at": ended("cancelled"),
        "request_counts": {
            "total": batch.num_lines,
            "completed": batch.num_completed,
            "failed": batch.num_failed,
        },
        "metadata": None if batch.metadata is None else msgspec.Raw(batch.metadata.encode()),
    }


def _seconds(when: datetime | None) -> int | None:
    return None if when is None else int(when.timestamp())
