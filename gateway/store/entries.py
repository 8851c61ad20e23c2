"""Writes settled requests into SQL, many at once and never twice: a row whose id is there already is left as it is."""

from collections.abc import Sequence
from datetime import UTC, datetime

from gateway.ledger.records import AttemptRecord, DecisionRecord, RequestRecord
from gateway.store.bulk import Values, insert_new
from gateway.store.database import Database
from gateway.store.errors import RowRefused
from gateway.store.ledger_tables import attempts, decisions, requests
from gateway.wire.usage import Usage


async def insert_entries(database: Database, records: Sequence[RequestRecord]) -> None:
    """One transaction. Raises StoreUnavailable or RowRefused; nothing is written then."""
    try:
        request_rows = [_request(record) for record in records]
        attempt_rows = [_attempt(attempt) for record in records for attempt in record.attempts]
        decision_rows = [_decision(record.decision) for record in records if record.decision is not None]
    except (ValueError, OverflowError, OSError) as error:  # a time that no calendar has
        raise RowRefused(str(error)) from error
    async with database.write() as connection:
        await insert_new(connection, requests, request_rows)
        await insert_new(connection, attempts, attempt_rows)
        await insert_new(connection, decisions, decision_rows)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _text(value: str | None) -> str | None:
    """PostgreSQL stores no NUL; clients may send one (in `user`, say), and their money must be booked all the same."""
    return value.replace("\0", "\ufffd") if value is not None and "\0" in value else value


def _real(value: float | None) -> float | None:
    return float(value) if value is not None else None  # a driver takes no number of numpy's


def _usage(usage: Usage) -> Values:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "compute_us": usage.compute_us,
        "estimated": usage.estimated,
    }


def _request(record: RequestRecord) -> Values:
    return {
        "id": record.id,
        "tenant_id": record.tenant_id,
        "key_id": record.key_id,
        "endpoint": record.endpoint,
        "requested_model": _text(record.requested_model),
        "model": _text(record.model),
        "provider": record.provider,
        "tier": record.tier,
        "stream": record.stream,
        "started_at": _time(record.started_at),
        "status": record.status,
        "http_status": record.http_status,
        "error_code": _text(record.error_code),
        "cache": record.cache,
        "cache_reason": _text(record.cache_reason),
        "cache_entry": record.cache_entry,
        "similarity": _real(record.similarity),
        "route_reason": _text(record.route_reason),
        **_usage(record.usage),
        "cost_nanousd": record.cost_nanousd,
        "baseline_model": record.baseline_model,
        "baseline_cost_nanousd": record.baseline_cost_nanousd,
        "saved_by_cache_nanousd": record.saved_by_cache_nanousd,
        "saved_by_routing_nanousd": record.saved_by_routing_nanousd,
        "ttft_ms": record.ttft_ms,
        "latency_ms": record.latency_ms,
        "namespace": _text(record.namespace),
        "user": _text(record.user),
        "config_hash": record.config_hash,
        "batch_id": record.batch_id,
    }


def _attempt(record: AttemptRecord) -> Values:
    return {
        "id": record.id,
        "request_id": record.request_id,
        "attempt": record.index,
        "model": _text(record.model),
        "provider": record.provider,
        "upstream_model": _text(record.upstream_model),
        "started_at": _time(record.started_at),
        "status": record.status,
        "http_status": record.http_status,
        "error_code": _text(record.error_code),
        **_usage(record.usage),
        "cost_nanousd": record.cost_nanousd,
        "ttft_ms": record.ttft_ms,
        "latency_ms": record.latency_ms,
    }


def _decision(record: DecisionRecord) -> Values:
    return {
        "request_id": record.request_id,
        "tier": record.tier,
        "reason": _text(record.reason),
        "confidence": _real(record.confidence),
        "task": record.task,
        "signals": _text(record.signals.decode("utf-8", "replace")),
        "embedding": record.embedding,
        "text": _text(record.text),
    }
