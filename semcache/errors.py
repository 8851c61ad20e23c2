"""Everything the semantic cache raises on purpose.

CacheError
├── EmbedderError     the embedding model can't be loaded or failed on a text
└── StoreError        a shared store (Redis) is away; callers degrade to what is in the process
"""


class CacheError(Exception):
    """Base of all errors of this package."""


class EmbedderError(CacheError):
    pass


class StoreError(CacheError):
    pass
