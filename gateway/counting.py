"""How many tokens a prompt has for the model that would answer it. Costs nothing, and leaves no record."""

import msgspec

from gateway.answer import Answer, error_answer
from gateway.errors import ApiError, UpstreamError
from gateway.estimates import prompt_tokens
from gateway.headers import identify
from gateway.house import House, Snapshot
from gateway.passage import Passage
from gateway.routes import choose, explicit
from gateway.tenants.gatekeeper import Incoming
from gateway.upstream.errors import UpstreamFailure
from gateway.upstream.types import CountsTokens, Outbound
from gateway.wire.dialect import Dialect


async def count_tokens(house: House, dialect: Dialect, raw: bytes, header: Incoming) -> Answer:
    """Counted by the model's own tokenizer where its backend can, else estimated by length.

    Raises ApiError for what is refused at the gate. It is a request as far as limits go.
    """
    house.doors.check()
    snapshot = house.snapshot
    principal = await house.authenticator.identify(header("authorization"), header)
    inference = dialect.parse(raw)
    passage = Passage(principal=principal, inference=inference, config_hash=snapshot.config.hash)
    passage.voice = dialect.voice(inference, passage.id)
    passage.ticket = await house.limiter.admit(principal)
    headers = identify(passage)
    try:
        decision = explicit(passage, snapshot) or await choose(passage, house, snapshot)
        number = await _count(passage, snapshot, decision.candidates[0])
    except ApiError as error:
        return error_answer(error, headers, encode=passage.voice.error)
    finally:
        await passage.ticket.settle()
    return Answer(msgspec.json.encode({"input_tokens": number}), headers=headers)


async def _count(passage: Passage, snapshot: Snapshot, model: str) -> int:
    for deployment in snapshot.catalog.fleet(model).deployments:
        if isinstance(deployment.backend, CountsTokens):
            outbound = Outbound(
                request_id=passage.id,
                inference=passage.inference,
                upstream_model=deployment.upstream_model,
                timeouts=deployment.timeouts,
                longest_answer=snapshot.catalog.max_output_tokens(model),
            )
            try:
                return await deployment.backend.count_tokens(outbound)
            except UpstreamFailure as error:
                raise UpstreamError(f"The upstream could not count: {error}", code=error.code) from error
    return prompt_tokens(passage.inference)
