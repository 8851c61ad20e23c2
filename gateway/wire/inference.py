"""One inference request, whatever its endpoint: a typed view for us, and the client's bytes for everybody else.

Only what cache, router, limits and the bundled engine need is typed; all other fields stay in `raw` and `fields`.
"""

from typing import Any, Literal

import msgspec

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class Message(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A chat message. `content` keeps the client's shape: text, parts or null."""

    role: Role
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None  # what tool_calls were called before there were several

    @property
    def text(self) -> str:
        """The text of a string or of all text parts, in order."""
        if isinstance(self.content, str):
            return self.content
        parts = self.content or []
        return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


class Native(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A request in its client's own API, for a backend that speaks it; the Inference around it is its translation."""

    raw: bytes
    fields: dict[str, msgspec.Raw]  # as Inference.fields
    headers: tuple[tuple[str, str], ...] = ()  # that belong to the request: versions, betas
    lost: tuple[str, ...] = ()  # what the translation could not say, in words
    unsigned: bool = False  # it holds thoughts of another model than the API's own, who wants to see none of them


Endpoint = Literal[  # as the backends know it
    "chat.completions",
    "completions",
    "embeddings",
    "moderations",
    "audio.transcriptions",
    "audio.translations",
    "audio.speech",
    "images.generations",
]
GENERATING = frozenset(("chat.completions", "completions"))


class Form(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A body that is multipart/form-data instead of JSON."""

    content_type: str  # with its boundary
    model: tuple[int, int]  # where the model's name lies in the raw bytes


class Inference(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    endpoint: Endpoint
    api: str = ""  # what the client spoke, where that was another API: "responses", "messages"
    native: Native | None = None
    form: Form | None = None
    raw: bytes
    fields: dict[str, msgspec.Raw]  # every top-level field of the body, undecoded, in the client's order
    model: str
    stream: bool = False
    include_usage: bool = False
    messages: tuple[Message, ...] = ()  # chat
    prompts: tuple[str | list[int], ...] = ()  # completions, embeddings: one for each answer wanted
    max_tokens: int | None = None  # max_completion_tokens, else max_tokens
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None  # ours and most engines'
    seed: int | None = None
    n: int = 1
    best_of: int | None = None  # completions: answers to make, of which the n likeliest are given
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    echo: bool = False
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None
    tools: list[dict[str, Any]] | None = None
    # "tools", "images", "audio", "files", "json_schema", "json_object", "logprobs"
    needs: frozenset[str] = frozenset()

    @property
    def asked_endpoint(self) -> str:
        """The endpoint as the client and the books know it."""
        return self.api or self.endpoint

    @property
    def last_user_text(self) -> str:
        for message in reversed(self.messages):
            if message.role == "user":
                return message.text
        return ""

    @property
    def num_choices(self) -> int:
        """How many answers a generating request asks for."""
        return self.n * max(1, len(self.prompts))
