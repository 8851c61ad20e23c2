"""What the tokens of a vocabulary stand for, as bytes, and which of them end an answer."""

import re
from collections.abc import Collection, Iterable, Sequence

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")

END_TOKENS = frozenset(
    {
        "<|endoftext|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<|end|>",
        "<end_of_turn>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
        "<EOT>",
        "</s>",
    }
)


def byte_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte (Radford et al. 2019, `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in alphabet)
    alphabet.update({byte: chr(256 + i) for i, byte in enumerate(list(others))})
    return alphabet


def byte_level_bytes(tokens: Sequence[str], special: Collection[int], literal: Collection[int]) -> list[bytes]:
    """Of a vocabulary in the byte alphabet; `special` ids have no text, `literal` ones stand for themselves."""
    # Latin-1 then writes each character as its byte; what isn't of the alphabet goes where Latin-1 can't follow.
    table = dict.fromkeys(range(256), "\uffff") | {ord(c): chr(byte) for byte, c in byte_alphabet().items()}
    found = [_byte_level(token, table) for token in tokens]
    for i in literal:
        found[i] = tokens[i].encode()
    return _without(found, special)


def sentencepiece_bytes(tokens: Iterable[str], special: Collection[int]) -> list[bytes]:
    """Of a vocabulary that writes spaces as U+2581 and the bytes of rare characters as <0x..>."""
    return _without([_sentencepiece(token) for token in tokens], special)


def _byte_level(token: str, table: dict[int, str]) -> bytes:
    try:
        return token.translate(table).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


def _sentencepiece(token: str) -> bytes:
    if match := _BYTE_TOKEN.fullmatch(token):
        return bytes([int(match[1], 16)])
    return token.replace("\u2581", " ").encode()


def _without(found: list[bytes], special: Collection[int]) -> list[bytes]:
    for i in special:
        found[i] = b""
    return found
