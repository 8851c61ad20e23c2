"""The response object: what was asked, repeated, and how the answer stands."""

from typing import Any

import msgspec

from gateway.wire.responses_api.request import Creation
from gateway.wire.responses_api.tools import told_tools

Response = dict[str, Any]

ACTIVE = ("queued", "in_progress")  # the others are ends
# OpenAI's codes for a response that failed; of ours, these two have one.
_ERROR_CODES = {"rate_limit_exceeded": "rate_limit_exceeded", "context_length_exceeded": "invalid_prompt"}


def opened(creation: Creation, created_at: int) -> Response:
    """A response that has yet to be answered. What the client left open stays null: a backend's default is its own."""
    wants = creation.wants
    reasoning, text = wants.reasoning, wants.text
    text_format = None if text is None else text.format
    response: Response = {
        "id": creation.response_id,
        "object": "response",
        "created_at": created_at,
        "status": "queued" if creation.background else "in_progress",
        "background": creation.background,
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": wants.instructions,
        "max_output_tokens": wants.max_output_tokens,
        "max_tool_calls": wants.max_tool_calls,
        "metadata": wants.metadata or {},
        "model": wants.model,
        "output": [],
        "parallel_tool_calls": wants.parallel_tool_calls is not False,
        "previous_response_id": wants.previous_response_id,
        "reasoning": {"effort": reasoning and reasoning.effort, "summary": reasoning and reasoning.summary},
        "service_tier": wants.service_tier,
        "store": creation.stored,
        "temperature": wants.temperature,
        "text": {"format": {"type": "text"} if text_format is None else msgspec.to_builtins(text_format)},
        "tool_choice": "auto" if wants.tool_choice is None else wants.tool_choice,
        "tools": told_tools(wants.tools or []),
        "top_logprobs": wants.top_logprobs or 0,
        "top_p": wants.top_p,
        "truncation": wants.truncation or "disabled",
    }
    optional = {name: getattr(wants, name) for name in ("user", "safety_identifier", "prompt_cache_key")}
    if text is not None and text.verbosity is not None:
        response["text"]["verbosity"] = text.verbosity
    return response | {name: value for name, value in optional.items() if value is not None}


def ended(response: Response, finish_reason: str | None, now: int) -> Response:
    """As a chat's finish_reason says: whole, or cut by length or filter."""
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    if (reason := reasons.get(finish_reason or "")) is not None:
        return response | {"status": "incomplete", "incomplete_details": {"reason": reason}}
    return response | {"status": "completed", "completed_at": now}


def failed(response: Response, message: str, code: str | None = None) -> Response:
    error = {"code": _ERROR_CODES.get(code or "", "server_error"), "message": message}
    return response | {"status": "failed", "error": error}


def usage_object(usage: dict[str, Any]) -> dict[str, Any]:
    """Chat's usage, undecoded but for JSON, under the names of the Responses API. What is not there was none."""
    prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    input_details = usage.get("prompt_tokens_details") or {}
    output_details = usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": input_details.get("cached_tokens") or 0,
            "cache_write_tokens": input_details.get("cache_write_tokens") or 0,
        },
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": output_details.get("reasoning_tokens") or 0},
        "total_tokens": prompt + completion,
    }
