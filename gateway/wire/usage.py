"""Token counts as providers report them. Knows no streams and no prices.

All write OpenAI's `usage`, and each has a way of its own to say what of it came from its cache or was thought.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

_Count = Annotated[int, Meta(ge=0, le=2**53)]


class Usage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What an answer used.

    `estimated` marks counts that no backend reported. Tokens read from a prompt cache and those written to it are part
    of prompt_tokens, reasoning ones of completion_tokens.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    compute_us: int = 0  # of an engine of ours
    estimated: bool = False

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def maximum(self, other: "Usage | None") -> "Usage":
        """The larger of each count: some upstreams report running totals with every chunk of a stream."""
        if other is None or other == self:
            return self
        return Usage(
            prompt_tokens=max(self.prompt_tokens, other.prompt_tokens),
            completion_tokens=max(self.completion_tokens, other.completion_tokens),
            cached_tokens=max(self.cached_tokens, other.cached_tokens),
            cache_write_tokens=max(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens=max(self.reasoning_tokens, other.reasoning_tokens),
            compute_us=max(self.compute_us, other.compute_us),
            estimated=self.estimated and other.estimated,
        )


class _PromptDetails(msgspec.Struct):
    cached_tokens: _Count | None = None
    cache_write_tokens: _Count | None = None  # OpenRouter
    cache_creation_tokens: _Count | None = None  # LiteLLM
    cache_creation_input_tokens: _Count | None = None  # Alibaba


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: _Count | None = None


class _WireUsage(msgspec.Struct):
    """The `usage` member of an answer. Every count may be missing or null: not every upstream is OpenAI.

    A count that is told in two places is one count.
    """

    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    total_tokens: _Count | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    cached_tokens: _Count | None = None  # Moonshot
    prompt_cache_hit_tokens: _Count | None = None  # DeepSeek
    cache_read_input_tokens: _Count | None = None  # Anthropic's names, in OpenAI's format
    cache_creation_input_tokens: _Count | None = None
    reasoning_tokens: _Count | None = None  # Perplexity

    def counted(self) -> Usage:
        prompt, completion = self.prompt_tokens or 0, self.completion_tokens or 0
        cached = self.cached_tokens or self.prompt_cache_hit_tokens or self.cache_read_input_tokens or 0
        written = self.cache_creation_input_tokens or 0
        reasoning = self.reasoning_tokens or 0
        if (inside := self.prompt_tokens_details) is not None:
            cached = inside.cached_tokens or cached
            written = (
                inside.cache_write_tokens
                or inside.cache_creation_tokens
                or inside.cache_creation_input_tokens
                or written
            )
        if (details := self.completion_tokens_details) is not None:
            reasoning = details.reasoning_tokens or reasoning
        if (left_out := (self.total_tokens or 0) - prompt - completion) > 0:
            if left_out == cached + written:
                prompt += left_out
            else:  # xAI and Gemini count thoughts in the total alone, and charge for them
                completion += left_out
                reasoning = max(reasoning, left_out)
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=cached,
            cache_write_tokens=written,
            reasoning_tokens=reasoning,
        )


_decode_usage = msgspec.json.Decoder(_WireUsage).decode


def read_usage(member: msgspec.Raw) -> Usage | None:
    """A `usage` member, undecoded; None when it is absent, null or nothing that can be read."""
    if not len(member):
        return None
    try:
        return _decode_usage(member).counted()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def usage_object(usage: Usage) -> dict[str, Any]:
    """Usage as OpenAI writes it for a generated answer. Zero cached tokens are said; what few models have is not."""
    written = {"cache_write_tokens": usage.cache_write_tokens} if usage.cache_write_tokens else {}
    told = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens} | written,
    }
    if usage.reasoning_tokens:
        told["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return told
