"""POST /tokenize and /detokenize, in vLLM's shape: what a model of the bundled engine reads, in its own tokens."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gateway.allowed import check_model
from gateway.answer import Answer
from gateway.errors import InvalidRequestError
from gateway.house import House
from gateway.ids import new_id
from gateway.tenants.gatekeeper import Incoming
from gateway.tenants.types import Principal
from gateway.upstream.types import Outbound, Tokenizes
from gateway.wire.body import check_model as check_name
from gateway.wire.body import decode_body, invalid
from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completion
from gateway.wire.inference import Inference

MAX_TOKENS = 1_000_000  # of a request to put them together again


class _Tokenize(msgspec.Struct):
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    return_token_strs: bool | None = None
    messages: Any = None


class _Detokenize(msgspec.Struct):
    model: str
    tokens: list[Annotated[int, Meta(ge=0)]]


_tokenize = msgspec.json.Decoder(_Tokenize)
_detokenize = msgspec.json.Decoder(_Detokenize)


async def tokenize(house: House, raw: bytes, header: Incoming) -> Answer:
    """Raises ApiError. It is a request as far as limits go, and leaves no record."""
    house.doors.check()
    principal = await house.authenticator.identify(header("authorization"), header)
    _, wanted = decode_body(raw, _tokenize)
    inference = parse_chat(raw) if wanted.messages is not None else parse_completion(raw)
    if wanted.add_generation_prompt is False:
        raise invalid("add_generation_prompt", "a prompt ends where the answer begins")
    with_special = wanted.add_special_tokens
    if wanted.messages is not None and with_special:
        raise invalid("add_special_tokens", "the model's chat template writes its own")
    if len(inference.prompts) > 1:
        raise invalid("prompt", "expected one")
    ticket = await house.limiter.admit(principal)
    try:
        backend = _tokenizer(house, principal, inference.model)
        tokens = await backend.tokenize(_outbound(inference), special=with_special is not False)
        told: dict[str, Any] = {"count": len(tokens), "max_model_len": backend.max_model_len, "tokens": tokens}
        strings = [backend.token_text(token) for token in tokens] if wanted.return_token_strs else None
        return Answer(msgspec.json.encode(told | {"token_strs": strings}))
    finally:
        await ticket.settle()


async def detokenize(house: House, raw: bytes, header: Incoming) -> Answer:
    """Raises ApiError."""
    house.doors.check()
    principal = await house.authenticator.identify(header("authorization"), header)
    _, wanted = decode_body(raw, _detokenize)
    check_name(wanted.model)
    if len(wanted.tokens) > MAX_TOKENS:
        raise invalid("tokens", f"more than {MAX_TOKENS}")
    ticket = await house.limiter.admit(principal)
    try:
        text = await _tokenizer(house, principal, wanted.model).detokenize(wanted.tokens)
        return Answer(msgspec.json.encode({"prompt": text}))
    finally:
        await ticket.settle()


def _tokenizer(house: House, principal: Principal, model: str) -> Tokenizes:
    """Raises PermissionDeniedError, NotFoundError, and InvalidRequestError where only a provider could tell."""
    catalog, scope = house.snapshot.catalog, principal.key.scope
    if scope is not None:
        check_model(scope, model, catalog.tiers)
    catalog.model(model, catalog.kind(model))
    for deployment in catalog.fleet(model).deployments:
        if isinstance(deployment.backend, Tokenizes):
            return deployment.backend
    message = f"The model '{model}' can't be asked for its tokens: only those of the bundled engine can."
    raise InvalidRequestError(message, param="model", code="missing_capability")


def _outbound(inference: Inference) -> Outbound:
    return Outbound(request_id=new_id(), inference=inference, upstream_model=inference.model)
