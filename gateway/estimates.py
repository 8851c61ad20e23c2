"""Token counts before anybody has counted: for reservations, for routing, and for answers that were cut off."""

from gateway.wire.inference import GENERATING, Inference
from gateway.wire.usage import Usage

MAX_BYTES_PER_TOKEN = 8
BYTES_PER_TOKEN = 4  # English under every current tokenizer is close to it; other scripts cost more bytes a token


def prompt_tokens(inference: Inference) -> int:
    """Of the whole body, so that tools and schemas count too; at least one. A form's files are no text."""
    if inference.form is not None:
        return 1
    return max(1, len(inference.raw) // BYTES_PER_TOKEN)


def least_prompt_tokens(inference: Inference) -> int:
    """What the prompt surely has: hardly a token of any tokenizer stands for more bytes on average."""
    return len(inference.raw) // MAX_BYTES_PER_TOKEN


def worst_case(inference: Inference, longest_answer: int) -> Usage:
    """What a request may use at most: its prompt, and as many answers of full length as it has made."""
    prompt = prompt_tokens(inference)
    if inference.endpoint not in GENERATING:
        return Usage(prompt_tokens=prompt, estimated=True)
    num_answers = inference.num_choices // inference.n * max(inference.n, inference.best_of or 1)
    return Usage(prompt_tokens=prompt, completion_tokens=num_answers * longest_answer, estimated=True)


def usage_so_far(inference: Inference, num_deltas: int) -> Usage:
    """For a stream that ended without usage: one token a delta, marked as estimated."""
    return Usage(prompt_tokens=prompt_tokens(inference), completion_tokens=num_deltas, estimated=True)


def usage_of_unreported(inference: Inference, text_length: int) -> Usage:
    """For a whole answer without usage, by the bytes of what it says."""
    completion = -(-text_length // BYTES_PER_TOKEN)
    return Usage(prompt_tokens=prompt_tokens(inference), completion_tokens=completion, estimated=True)
