"""Token counts before anybody has counted: for reservations, for routing, and for answers that were cut off."""

from gateway.wire.inference import Inference
from gateway.wire.usage import Usage

BYTES_PER_TOKEN = 4  # English under every current tokenizer is close to it; other scripts cost more bytes a token


def prompt_tokens(inference: Inference) -> int:
    """Of the whole body, so that tools and schemas count too; at least one."""
    return max(1, len(inference.raw) // BYTES_PER_TOKEN)


def worst_case_tokens(inference: Inference, default_max_tokens: int) -> int:
    """What a request may use at most: prompt, and as many answers of full length as it asks for."""
    if inference.endpoint == "embeddings":
        return prompt_tokens(inference)
    longest = inference.max_tokens if inference.max_tokens is not None else default_max_tokens
    answers = inference.n * max(1, len(inference.prompts))
    return prompt_tokens(inference) + answers * longest


def usage_so_far(inference: Inference, num_deltas: int) -> Usage:
    """For an answer that broke off before its usage came: one token a delta, marked as estimated."""
    return Usage(prompt_tokens=prompt_tokens(inference), completion_tokens=num_deltas, estimated=True)
