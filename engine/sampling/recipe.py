"""How one request chooses its tokens, worked out from its parameters once."""

import numpy as np

from engine.request import Request
from engine.sampling.token_counts import TokenCounts
from engine.types import SamplingParams
from engine.validation import MAX_LOGIT_BIAS

MIN_TEMPERATURE = 1e-5  # below it the distribution is a point: greedy
MIN_TOP_P = 1e-6


class Recipe:
    """`bias` is (token_ids, values) or None. A bias of -100 bans a token, as OpenAI's does: no other token's chance can

    be so small that it would come up all the same.
    """

    __slots__ = ("bias", "counts", "is_plain", "num_logprobs", "sampling", "seed", "temperature")

    def __init__(self, request: Request) -> None:
        sampling = request.params.sampling
        assert sampling.seed is not None, "validation gives every request a seed"
        self.sampling = sampling
        self.seed = sampling.seed & 0xFFFF_FFFF_FFFF_FFFF
        self.temperature = 0.0 if _is_greedy(sampling) else sampling.temperature
        self.num_logprobs = sampling.logprobs
        self.bias = None
        if sampling.logit_bias:
            values = np.array(list(sampling.logit_bias.values()), np.float32)
            self.bias = (
                np.array(list(sampling.logit_bias), np.int32),
                np.where(values <= -MAX_LOGIT_BIAS, np.float32(-np.inf), values),
            )
        self.counts = TokenCounts(request) if _penalises(sampling) else None
        self.is_plain = self.temperature == 0 and self.bias is None and self.counts is None


def _is_greedy(sampling: SamplingParams) -> bool:
    return (
        sampling.temperature < MIN_TEMPERATURE
        or sampling.top_p < MIN_TOP_P
        or sampling.top_k == 1
        or sampling.min_p >= 1
    )


def _penalises(sampling: SamplingParams) -> bool:
    return sampling.repetition_penalty != 1 or sampling.frequency_penalty != 0 or sampling.presence_penalty != 0
