"""Token counts as OpenAI reports them, and the sum we keep books on."""

import msgspec


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """`estimated` marks counts that no backend reported. Cached tokens are part of prompt_tokens, reasoning ones of
    completion_tokens."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens
