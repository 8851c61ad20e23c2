"""POST /v1/embeddings: the body parsed and checked as strictly as OpenAI does. Unknown fields are kept."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.wire.body import check_model, decode_body, invalid, missing
from gateway.wire.completions import texts_or_tokens
from gateway.wire.inference import Inference

MAX_INPUTS = 2048


class _EmbeddingFields(msgspec.Struct):
    model: str
    input: Any = msgspec.UNSET
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    user: str | None = None


_decoder = msgspec.json.Decoder(_EmbeddingFields)


def parse_embedding(raw: bytes) -> Inference:
    """Raises InvalidRequestError, with `param` naming the field at fault."""
    fields, body = decode_body(raw, _decoder)
    check_model(body.model)
    if body.input is msgspec.UNSET:
        raise missing("input")
    inputs = texts_or_tokens(body.input, "input")
    if len(inputs) > MAX_INPUTS:
        raise invalid("input", f"expected at most {MAX_INPUTS} inputs, got {len(inputs)}")
    if "" in inputs:
        raise invalid("input", "an input can't be an empty string")
    return Inference(
        endpoint="embeddings",
        raw=raw,
        fields=fields,
        model=body.model,
        prompts=inputs,
        encoding_format=body.encoding_format or "float",
        dimensions=body.dimensions,
        user=body.user,
    )
