"""From a request to the models to try: the client's own word first, then the router's."""

import math
from collections.abc import Mapping

from msgspec.structs import replace

from gateway.allowed import check_model, check_tier, nothing_left
from gateway.config import AUTO, ModelKind
from gateway.errors import ContextLengthExceeded, InvalidRequestError
from gateway.estimates import least_prompt_tokens, prompt_tokens
from gateway.house import House, Snapshot
from gateway.passage import Passage
from gateway.tenants.types import Scope
from routing.errors import NoCapableModel
from routing.types import Decision, Prompt

KINDS_OF: Mapping[str, ModelKind] = {  # of the endpoints that are not for chat models
    "embeddings": "embedding",
    "moderations": "moderation",
    "audio.transcriptions": "transcription",
    "audio.translations": "transcription",
    "audio.speech": "speech",
    "images.generations": "image",
}


def explicit(passage: Passage, snapshot: Snapshot) -> Decision | None:
    """The decision of a client that names a model; None when it leaves the choice to the router.

    Raises PermissionDeniedError for what the key's scope leaves out, NotFoundError for a model nobody serves,
    InvalidRequestError for a tier that does not exist.
    """
    catalog, inference, scope = snapshot.catalog, passage.inference, passage.principal.key.scope
    tier = passage.tier_wanted
    if tier is not None and tier not in catalog.tiers:
        known = ", ".join(catalog.tiers) or "none"
        raise InvalidRequestError(
            f"unknown tier {tier!r}; there are: {known}", param="x-tollhouse-tier", code="unknown_tier"
        )
    if scope is not None and tier is not None:
        check_tier(scope, tier)
    if check_name(inference.model, KINDS_OF.get(inference.endpoint, "chat"), scope, snapshot):
        return None
    return Decision(
        tier=catalog.tier_of.get(inference.model, ""), candidates=(inference.model,), reason="explicit model"
    )


def check_name(model: str, kind: ModelKind, scope: Scope | None, snapshot: Snapshot) -> bool:
    """Whether a model's name leaves the choice to the router. Raises as `explicit`."""
    if model == AUTO and kind == "chat" and snapshot.router is not None:
        if scope is not None and snapshot.router_for(scope) is None:
            raise nothing_left(scope)
        return True
    if scope is not None and model != AUTO:
        check_model(scope, model, snapshot.catalog.tiers)
    snapshot.catalog.model(model, kind)
    return False


def deadline_s(wanted: str | None, ours_s: float | None) -> float | None:
    """For all attempts of a request together: the client's header may lower what the config says.

    Raises InvalidRequestError.
    """
    if wanted is None:
        return ours_s
    try:
        seconds = float(wanted)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        message = f"x-tollhouse-timeout-s must be a number of seconds above 0, not {wanted[:40]!r}."
        raise InvalidRequestError(message, param="x-tollhouse-timeout-s")
    return seconds if ours_s is None else min(seconds, ours_s)


async def choose(passage: Passage, house: House, snapshot: Snapshot) -> Decision:
    """The router's decision over the same embedding that the cache used."""
    router = snapshot.router_for(passage.principal.key.scope)
    assert router is not None, "explicit refuses `auto` where nothing is left to choose from"
    text = passage.question_text
    if passage.embedding is None and passage.tier_wanted is None and text:
        passage.embedding = await house.cache.embed(text)  # None: the router decides from the text's features
    prompt = Prompt(
        text=text,
        embedding=passage.embedding,
        num_tokens=prompt_tokens(passage.inference),
        at_least=least_prompt_tokens(passage.inference),
        needs=passage.inference.needs,
        tier=passage.tier_wanted,
    )
    try:
        decision = router.choose(prompt)
    except NoCapableModel as error:
        if error.missing.startswith("a context"):
            raise ContextLengthExceeded(str(error), param="messages") from error
        raise InvalidRequestError(str(error), param="model", code="missing_capability") from error
    return _say_who_is_missing(decision, snapshot)


def longest_answer(passage: Passage, snapshot: Snapshot) -> int:
    """In tokens: max_tokens, else the tenant's default, else the largest output of the models that may serve."""
    if passage.inference.max_tokens is not None:
        return passage.inference.max_tokens
    default = passage.principal.tenant.default_max_tokens
    if default is not None:
        return default
    assert passage.decision is not None
    return max(map(snapshot.catalog.max_output_tokens, passage.decision.candidates))


def _say_who_is_missing(decision: Decision, snapshot: Snapshot) -> Decision:
    """The reason names models of the tier that were passed over for want of their provider's key."""
    catalog = snapshot.catalog
    missing = [model for model in catalog.tiers[decision.tier] if catalog.missing_key(model)]
    if not missing:
        return decision
    return replace(decision, reason=f"{decision.reason}; passed over for want of a key: {', '.join(missing)}")
