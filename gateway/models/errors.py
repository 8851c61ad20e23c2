"""What can go wrong between a model's name in the config and its files on disk."""


class ModelSourceError(Exception):
    """The source cannot be understood, fetched or trusted; the message is for the person who wrote it."""
