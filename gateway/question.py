"""What a request asks, as the cache sees it: which fields make the partition, and whether it may be cached at all.

Everything that can change the answer separates: unknown fields too. Only what provably can't is left out.
"""

from typing import Any

import msgspec

from gateway.wire.inference import GENERATING, Inference, Message
from semcache.key import digest
from semcache.types import Question

NEUTRAL_FIELDS = frozenset(
    # They say how the answer travels or who asks, never what it says.
    (
        "messages",
        "prompt",
        "stream",
        "stream_options",
        "user",
        "metadata",
        "store",
        "safety_identifier",
        "prompt_cache_key",
    )
)
DEFAULTS: dict[str, tuple[bytes, ...]] = {
    # A field at its default is the same request as one without the field.
    "temperature": (b"null",),  # a server's own default need not be OpenAI's
    "top_p": (b"null",),
    "n": (b"1", b"null"),
    "stop": (b"null",),
    "presence_penalty": (b"0", b"0.0", b"null"),
    "frequency_penalty": (b"0", b"0.0", b"null"),
    "logit_bias": (b"null", b"{}"),
    "logprobs": (b"false", b"null"),
    "seed": (b"null",),
    "max_tokens": (b"null",),
    "max_completion_tokens": (b"null",),
    "response_format": (b"null", b'{"type":"text"}', b'{"type": "text"}'),
    "tools": (b"null", b"[]"),
    "tool_choice": (b"null",),
}


class Directives(msgspec.Struct, frozen=True, gc=False):
    """What the client's cache-control header wants (RFC 9111, section 5.2.1)."""

    no_store: bool = False
    no_cache: bool = False
    only_if_cached: bool = False
    max_age_s: float | None = None

    @classmethod
    def parse(cls, header: str | None) -> "Directives":
        if not header:
            return NO_DIRECTIVES
        names = [part.strip().lower() for part in header.split(",")]
        ages = [name.removeprefix("max-age") for name in names if name.partition("=")[0].rstrip() == "max-age"]
        return cls(
            "no-store" in names, "no-cache" in names, "only-if-cached" in names, _age_s(ages[0]) if ages else None
        )


NO_DIRECTIVES = Directives()


def _age_s(written: str) -> float:
    """What follows "max-age"; 0 for nonsense, so that nothing is fresh enough (RFC 9111, section 4.2.1)."""
    seconds = written.strip(' ="')
    return float(seconds) if seconds.isascii() and seconds.isdigit() else 0.0


def why_not_cacheable(inference: Inference, max_temperature: float) -> str | None:
    """A reason code when this request may neither be answered from the cache nor stored."""
    if inference.endpoint not in GENERATING:
        return inference.endpoint
    if inference.temperature is not None and inference.temperature > max_temperature:
        return "temperature"
    if inference.endpoint == "completions" and len(inference.prompts) != 1:
        return "many-prompts"
    return None


def ask(inference: Inference, *, owner: tuple[str, ...], behind: Any, bounds: Any) -> Question:
    """`owner` is who may share answers (tenant, namespace), `behind` what answers to the model's name at present,
    `bounds` what narrows `auto` (a tier asked for, a key's scope).
    """
    told = inference.native or inference  # what the client wrote, not its translation: that may say less
    fields = told.fields
    shaping = {
        name: msgspec.json.decode(fields[name])
        for name in fields.keys() - NEUTRAL_FIELDS
        if bytes(fields[name]) not in DEFAULTS.get(name, ())
    }
    if inference.native is not None:
        shaping["headers"] = inference.native.headers
    last, rest = _last_turn(inference)
    partition = digest(owner, inference.asked_endpoint, behind, bounds, shaping, rest)
    return Question(
        partition=partition,
        exact_key=digest(partition.hex(), last),
        text=_semantic_text(inference),
        owner=owner[0],
    )


def _last_turn(inference: Inference) -> tuple[Any, list[Any]]:
    """What the last turn says, and everything else: earlier turns, and whatever the last one holds beside (a name)."""
    if inference.endpoint == "completions":
        return inference.prompts[0], []
    told = inference.native or inference
    turns: list[dict[str, Any]] = msgspec.json.decode(told.fields["messages"])  # raw: unknown fields count too
    *earlier, last = turns
    return last.pop("content", None), [*earlier, last]


def _semantic_text(inference: Inference) -> str:
    """What is embedded: the user's last turn, if it is plain text and stands in no tool conversation."""
    if inference.endpoint == "completions":
        prompt = inference.prompts[0]
        return prompt if isinstance(prompt, str) and not inference.echo else ""
    last = inference.messages[-1]
    if last.role != "user" or not isinstance(last.content, str) or any(map(_involves_tools, inference.messages)):
        return ""
    return last.content


def _involves_tools(message: Message) -> bool:
    return message.role == "tool" or bool(message.tool_calls)
