"""What the journal's frames say: an attempt was opened, a request was settled."""

from typing import Any

import msgspec

from gateway.ledger.frames import Frame, encode_frame
from gateway.ledger.records import AttemptRecord, RequestRecord

OPENED = 1
SETTLED = 2
_LARGEST = 2**63 - 1  # of a BIGINT


def _plain(value: Any) -> Any:
    """A number of numpy's, as similarities are."""
    return value.item()


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
_opened = msgspec.msgpack.Decoder(tuple[AttemptRecord, RequestRecord])
_settled = msgspec.msgpack.Decoder(RequestRecord)


def encode_opened(attempt: AttemptRecord, request: RequestRecord) -> bytes:
    try:
        return encode_frame(OPENED, _encode((attempt, request)))
    except (UnicodeEncodeError, OverflowError):
        return encode_frame(OPENED, _encode((_mend(attempt), _mend(request))))


def encode_settled(record: RequestRecord) -> bytes:
    try:
        return encode_frame(SETTLED, _encode(record))
    except (UnicodeEncodeError, OverflowError):
        return encode_frame(SETTLED, _encode(_mend(record)))


def decode_opened(frame: Frame) -> tuple[AttemptRecord, RequestRecord]:
    return _opened.decode(frame.payload)


def decode_settled(frame: Frame) -> RequestRecord:
    return _settled.decode(frame.payload)


def _mend(value: Any) -> Any:
    """Half a surrogate pair from a client, a count beyond 64 bits from an upstream: booked as near as can be."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-_LARGEST, min(_LARGEST, value))
    if isinstance(value, tuple):
        return tuple(_mend(each) for each in value)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: _mend(getattr(value, name)) for name in value.__struct_fields__})
    return value
