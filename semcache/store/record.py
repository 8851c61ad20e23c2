"""An entry as bytes, for whatever outlives the process: question, answer, and the vector with its embedder's id."""

from typing import TYPE_CHECKING

import msgspec

from semcache.types import Question, StoredAnswer

if TYPE_CHECKING:
    from semcache.vector import Vector


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`codes` is the (d,) vector in little-endian float16, as precise as the index keeps it; empty: it has none."""

    question: Question
    answer: StoredAnswer
    embedder_id: str = ""
    codes: bytes = b""


decode_record = msgspec.msgpack.Decoder(Record).decode  # raises msgspec.MsgspecError
_encode = msgspec.msgpack.Encoder().encode


def encode_record(question: Question, answer: StoredAnswer, vector: "Vector | None", embedder_id: str) -> bytes:
    """`vector` is (d,) float32."""
    if vector is None:
        return _encode(Record(question, answer))
    return _encode(Record(question, answer, embedder_id, vector.astype("<f2").tobytes()))
