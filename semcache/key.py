"""Identity: a digest over canonical JSON. Knows nothing of what the parts mean.

Two values have the same digest exactly when they are the same JSON value: the order of an object's keys and the
spelling of its whitespace don't count, everything else does (1 and 1.0, "1" and 1, None and absent are different).
"""

import hashlib
from typing import Any

import msgspec

from semcache.errors import CacheError

DIGEST_BYTES = 16  # 128 bits: a birthday collision among 10**12 entries has probability 1.5e-15

_encoder = msgspec.json.Encoder(order="deterministic")


def digest(*parts: Any) -> bytes:
    """The blake2b digest (16 bytes, RFC 7693) of the parts as one canonical JSON array.

    Parts are JSON-like: None, bool, int, float, str, bytes (as base64), lists, tuples, dicts and msgspec Structs.
    Because the array is encoded as a whole, ("ab", "c") and ("a", "bc") differ. Raises CacheError for anything else.
    """
    try:
        return hashlib.blake2b(_encoder.encode(parts), digest_size=DIGEST_BYTES).digest()
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise CacheError(f"not a JSON value, so it has no digest: {error}") from error
