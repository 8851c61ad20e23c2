"""What can't be found or done, in OpenAI's words for it."""

from gateway.errors import InvalidRequestError, NotFoundError


def no_such_response(id: str) -> NotFoundError:
    return NotFoundError(f"Response with id '{id[:100]}' not found.", param="response_id")


def no_such_previous(id: str) -> InvalidRequestError:
    message = f"Previous response with id '{id[:100]}' not found."
    return InvalidRequestError(message, param="previous_response_id", code="previous_response_not_found")


def no_such_item(id: str) -> NotFoundError:
    message = f"Item with id '{id[:100]}' not found. Items are not persisted when `store` is set to false."
    return NotFoundError(message, param="input")


def refused(param: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(message, param=param)
