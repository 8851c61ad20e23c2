"""Why an upstream gave no usable answer. All are retried, here and on other candidates, as long as no byte has left.

UpstreamFailure         `code` names it in the books
├── ConnectFailure      refused, unreachable, TLS, DNS
├── CrowdedFailure      no connection fell free in time: as many are in use as may be
├── TimeoutFailure      connect, first token, between tokens, whole: `phase` says which
└── ProtocolFailure     reset, half-closed, garbage, oversize, a stream that ended without an end
    ├── RedirectFailure sent elsewhere, which is not followed: no model has run
    └── NoAnswerFailure success, and nothing that a model made: no body, somebody's page
"""

from typing import Literal

Phase = Literal["connect", "first_token", "idle", "total"]


class UpstreamFailure(Exception):
    code: str = "upstream_error"

    def __init__(self, message: str, http_status: int | None = None) -> None:
        super().__init__(message)
        self.http_status = http_status  # where one came


class ConnectFailure(UpstreamFailure):
    code = "connect_error"


class CrowdedFailure(UpstreamFailure):
    """Says nothing about the upstream's health."""

    code = "connections_exhausted"


class TimeoutFailure(UpstreamFailure):
    code = "timeout"

    def __init__(self, phase: Phase, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} s ({phase})")
        self.phase = phase


class ProtocolFailure(UpstreamFailure):
    code = "protocol_error"


class RedirectFailure(ProtocolFailure):
    code = "redirected"


class NoAnswerFailure(ProtocolFailure):
    code = "no_answer"
