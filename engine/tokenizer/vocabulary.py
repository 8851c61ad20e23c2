"""What the tokens of a vocabulary stand for, as bytes, and which of them end an answer."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

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


class TokenBytes:
    """What each token of a vocabulary adds to a text. Worked out when asked for: of 100,000, an answer has few."""

    def __init__(self, tokens: Sequence[str], decode: Callable[[str], bytes], known: Mapping[int, bytes]) -> None:
        """`known`: of ids for which `decode` is wrong. Raises IndexError for ids that are no token's."""
        self._tokens = tokens
        self._decode = decode
        self._found = dict(known)
        if self._found:
            tokens[max(self._found)]

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, token_id: int) -> bytes:
        found = self._found.get(token_id)
        if found is None:
            found = self._found[token_id] = self._decode(self._tokens[token_id])
        return found

    def __setitem__(self, token_id: int, text: bytes) -> None:
        self._found[token_id] = text


def byte_level_bytes(tokens: Sequence[str], special: Iterable[int], literal: Iterable[int]) -> TokenBytes:
    """Of a vocabulary in the byte alphabet; `special` ids have no text, `literal` ones stand for themselves."""
    return TokenBytes(tokens, _byte_level, {i: tokens[i].encode() for i in literal} | dict.fromkeys(special, b""))


def sentencepiece_bytes(tokens: Sequence[str], special: Iterable[int]) -> TokenBytes:
    """Of a vocabulary that writes spaces as U+2581 and the bytes of rare characters as <0x..>."""
    return TokenBytes(tokens, _sentencepiece, dict.fromkeys(special, b""))


# Latin-1 then writes each character as its byte; what isn't of the alphabet goes where Latin-1 can't follow.
_LATIN_1 = dict.fromkeys(range(256), "\uffff") | {ord(c): chr(byte) for byte, c in byte_alphabet().items()}


def _byte_level(token: str) -> bytes:
    try:
        return token.translate(_LATIN_1).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


def _sentencepiece(token: str) -> bytes:
    if match := _BYTE_TOKEN.fullmatch(token):
        return bytes([int(match[1], 16)])
    return token.replace("\u2581", " ").encode()
