"""What a model's tokens cost, and the arithmetic: whole nano-dollars, rounded once. Knows no table and no time."""

import msgspec
from msgspec.structs import replace

from gateway.wire.usage import Usage

_MTOK = 1_000_000
_US_PER_HOUR = 3_600_000_000


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """In nano-dollars per million tokens, or per hour of the machine. All is free where `known` is False: nobody has
    set a price.
    """

    input: int = 0
    output: int = 0
    cached_input: int = 0
    cache_write_input: int | None = None  # as input
    reasoning_output: int | None = None  # as output
    hour: int | None = None  # of an engine's time; tokens cost nothing then
    known: bool = True

    @property
    def amounts(self) -> tuple[int, ...]:
        """All that are given."""
        of_tokens = (self.input, self.output, self.cached_input)
        others = (self.cache_write_input, self.reasoning_output, self.hour)
        return (*of_tokens, *(amount for amount in others if amount is not None))

    def cost_nanousd(self, usage: Usage) -> int:
        """Rounded once, half up.

        Tokens read from a prompt cache and those written to it are part of the prompt's, reasoning ones of the
        completion's: each is billed once, at its own price. Counts that contradict each other are held to that.
        """
        if self.hour is not None:
            return (max(0, usage.compute_us) * self.hour + _US_PER_HOUR // 2) // _US_PER_HOUR
        prompt, completion = usage.prompt_tokens, usage.completion_tokens
        if prompt < 0 or completion < 0:
            prompt, completion = max(0, prompt), max(0, completion)
        exact = prompt * self.input + completion * self.output
        if usage.cached_tokens or usage.cache_write_tokens or usage.reasoning_tokens:
            exact += self._of_parts(usage, prompt, completion)
        return (exact + _MTOK // 2) // _MTOK

    def _of_parts(self, usage: Usage, prompt: int, completion: int) -> int:
        """What the parts that have prices of their own cost more than the rest, or less."""
        cached = min(max(0, usage.cached_tokens), prompt)
        written = min(max(0, usage.cache_write_tokens), prompt - cached)
        reasoning = min(max(0, usage.reasoning_tokens), completion)
        return (
            cached * (self.cached_input - self.input)
            + written * (_or(self.cache_write_input, self.input) - self.input)
            + reasoning * (_or(self.reasoning_output, self.output) - self.output)
        )

    def worst_nanousd(self, usage: Usage) -> int:
        """What it costs if all of the prompt is written to a cache, and all of the answer is thought."""
        written, reasoning = self.cache_write_input or 0, self.reasoning_output or 0
        if written <= self.input and reasoning <= self.output:
            return self.cost_nanousd(usage)
        dearest = replace(self, input=max(self.input, written), output=max(self.output, reasoning))
        return dearest.cost_nanousd(usage)


def _or(amount: int | None, other: int) -> int:
    return other if amount is None else amount
