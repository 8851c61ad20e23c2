"""What both APIs say in other words: why an answer ended, and how its tokens are counted.

Anthropic's `input_tokens` leave out what was read from the prompt cache or written to it; OpenAI's `prompt_tokens` are
all of them.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gateway.wire.usage import Usage

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",  # a long turn to be continued: nothing may take it for a whole answer
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}

_Count = Annotated[int, Meta(ge=0, le=2**53)]


class _OutputDetails(msgspec.Struct):
    thinking_tokens: _Count | None = None


class MessageUsage(msgspec.Struct):
    """The `usage` of a message or of an event; every count may be missing or null."""

    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    cache_read_input_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None
    output_tokens_details: _OutputDetails | None = None

    def counted(self) -> Usage:
        read, written = self.cache_read_input_tokens or 0, self.cache_creation_input_tokens or 0
        details = self.output_tokens_details
        return Usage(
            prompt_tokens=(self.input_tokens or 0) + read + written,
            completion_tokens=self.output_tokens or 0,
            cached_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=(details.thinking_tokens or 0) if details else 0,
        )


def stop_reason(finish_reason: str | None) -> str:
    """A finish_reason in Anthropic's words; an unknown one is the end of a turn."""
    return STOP_REASONS.get(finish_reason or "", "end_turn")


def finish_reason(stop_reason: str | None) -> str:
    """A stop_reason in OpenAI's words; an unknown one is the end of a turn."""
    return FINISH_REASONS.get(stop_reason or "", "stop")


def message_usage(usage: Usage) -> dict[str, Any]:
    """Usage as Anthropic writes it. A zero is said, not left out."""
    return {
        "input_tokens": max(0, usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }
