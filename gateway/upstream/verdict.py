"""What to make of an upstream's answer: serve it, try again, or go to the next candidate. Pure functions of a Reply."""

import datetime
import email.utils
from dataclasses import dataclass

import msgspec

from gateway.errors import ApiError
from gateway.upstream.errors import CrowdedFailure, TimeoutFailure, UpstreamFailure
from gateway.upstream.formats import Format, Holds
from gateway.upstream.types import Reply
from gateway.wire.usage import Usage

OUR_FAULT = {401, 402, 403}  # our credential, our account: nothing the client could mend, and not to be shown
CROWDED = {503, 529}  # 529: Anthropic's own
PASSING = {408, 409, 429}  # may work a moment later, as may all 5xx
MAX_RETRY_AFTER_S = 2.0  # whoever asks for a longer wait is not waited for


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt that gave nothing to serve."""

    code: str  # for the books and for the client, without a word of the upstream's
    detail: str  # for the log
    retryable: bool = False
    http_status: int | None = None
    retry_after_s: float | None = None
    timed_out: bool = False
    crowded: bool = False  # all connections that we may have there are busy
    reply: Reply | None = None  # passes as it came if no other candidate is left
    error: ApiError | None = None  # a backend of ours refused
    usage: Usage | None = None  # what it reports to have cost all the same
    blameless: bool = False  # says nothing about the deployment's health

    @property
    def is_refusal(self) -> bool:
        """The request's own fault, told by a backend of ours: the attempt did all it could."""
        return self.error is not None and self.error.status < 500


def judge(reply: Reply, first_events: list[bytes]) -> Failed | None:
    """None: the client shall have it, be it a success or a refusal that is the client's own doing."""
    status = reply.status
    if status < 300:
        return _judge_success(reply, first_events)
    code = f"http_{status}"
    if status in OUR_FAULT:
        return Failed(code, "the upstream does not accept our credentials", http_status=status)
    if status not in PASSING and status < 500:
        return None
    retry_after_s = retry_after({name.decode(): value.decode("latin-1") for name, value in reply.headers.items()})
    passes = status in PASSING or (status in CROWDED and retry_after_s is not None)
    return Failed(
        code,
        f"HTTP {status}",
        retryable=True,
        http_status=status,
        retry_after_s=retry_after_s,
        reply=reply if passes else None,
    )


def _judge_success(reply: Reply, first_events: list[bytes]) -> Failed | None:
    """A 200 may still hold an error, nonsense, or no JSON at all; a stream's may come behind its opening."""
    try:
        held = reply.content.held if reply.events is None else _held(first_events, reply.format)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        why = f"the answer is not what it should be: {fault}"
        return Failed("protocol_error", why, retryable=True, http_status=reply.status)
    if held == "answer":
        return None
    if held == "error":
        why = "an error in an answer with status 200"
        return Failed("error_in_answer", why, retryable=True, http_status=reply.status)
    why, usage = "the answer holds nothing", reply.content.usage
    return Failed("no_answer", why, retryable=True, http_status=reply.status, usage=usage)


def _held(events: list[bytes], format: Format) -> Holds:
    if b'"error"' not in b"".join(events):
        return "answer"
    suspects = [payload for payload in events if b'"error"' in payload]
    return "error" if any(map(format.is_error, suspects)) else "answer"


def failure(error: UpstreamFailure | ApiError) -> Failed:
    """What an exception of a backend means."""
    if isinstance(error, ApiError):
        return Failed(error.name, error.message, http_status=error.status, error=error, blameless=True)
    if isinstance(error, CrowdedFailure):
        return Failed(error.code, str(error), crowded=True, blameless=True)
    if isinstance(error, TimeoutFailure):
        return Failed(f"timeout_{error.phase}", str(error), retryable=True, timed_out=True)
    return Failed(error.code, str(error), retryable=True, http_status=error.http_status)


def retry_after(headers: dict[str, str]) -> float | None:
    """Seconds that the upstream asks us to wait (RFC 9110, section 10.2.3); None if it does not say, or not clearly."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        value = headers.get("retry-after", "").strip()
        if not value:
            return None
        if value[0].isdigit() or value[0] in "+-.":
            return max(0.0, float(value))
        when = email.utils.parsedate_to_datetime(value)
        return max(0.0, (when - datetime.datetime.now(when.tzinfo)).total_seconds())
    except (ValueError, OverflowError):
        return None
