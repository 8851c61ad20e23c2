"""What can't be found or done with a batch, in OpenAI's words for it."""

from gateway.batches.types import Batch
from gateway.errors import InvalidRequestError, NotFoundError


def no_such_batch(id: str) -> NotFoundError:
    return NotFoundError(f"No batch found with id '{id[:100]}'.", param="batch_id")


def ended_already(batch: Batch) -> InvalidRequestError:
    return InvalidRequestError(f"Cannot cancel a batch with status '{batch.status}'.", param="batch_id")


def wrong_purpose(id: str, purpose: str) -> InvalidRequestError:
    message = f"The file {id} has the purpose '{purpose}': a batch's input is uploaded with purpose='batch'."
    return InvalidRequestError(message, param="input_file_id", code="invalid_file_purpose")
