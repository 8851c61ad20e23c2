"""What can't be found or done with a file, in OpenAI's words for it."""

from gateway.errors import InvalidRequestError, NotFoundError, PayloadTooLarge


def no_such_file(id: str) -> NotFoundError:
    return NotFoundError(f"No such File object: {id[:100]}", param="id")


def in_use(id: str, batch_id: str) -> InvalidRequestError:
    message = f"The file {id} is the input of {batch_id}, which has not ended: cancel it first."
    return InvalidRequestError(message, param="id", code="file_in_use")


def too_large(max_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The file is larger than the {max_bytes} bytes that this gateway takes ([files] max_mb).")


def no_room(max_bytes: int) -> PayloadTooLarge:
    message = f"Your files would take more than the {max_bytes} bytes that each tenant has: delete some."
    return PayloadTooLarge(message, code="storage_exceeded")
