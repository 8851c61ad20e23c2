"""API keys: made here, shown once, kept as a hash. Knows nothing of tenants.

A key holds 256 random bits, so a single SHA-256 hides it as well as a slow hash would: there is nothing to guess.
"""

import hashlib
import secrets
import string

_ALPHABET = string.digits + string.ascii_letters
_LENGTH = 43  # characters of base62 for 256 bits
PREFIX = "sk-th-"
_sha256 = hashlib.sha256


def make_key() -> str:
    return PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))


def hash_key(key: str) -> bytes:
    """32 bytes, of anything that a caller may send as a key."""
    return _sha256(key.encode("utf-8", "surrogatepass")).digest()


def display_prefix(key: str) -> str:
    """What may be shown later, for people to tell keys apart: 4 of the 43 characters."""
    return key[: len(PREFIX) + 4]
