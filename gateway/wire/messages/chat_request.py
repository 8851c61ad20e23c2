"""A chat request for a provider of the Messages API. What that API can't do is refused, nothing is silently left out.

Fields of OpenAI's are translated, refused or (where no answer depends on them) dropped; all others go on as they came.
Structured output is asked for in `output_config.format`:
https://platform.claude.com/docs/en/build-with-claude/structured-outputs
"""

from typing import Any

import msgspec

from gateway.errors import InvalidRequestError
from gateway.wire.body import invalid
from gateway.wire.inference import Inference
from gateway.wire.messages.chat_turns import Turns
from gateway.wire.messages.tools import anthropic_tool_choice, anthropic_tools

_DROPPED = frozenset(
    # They say how the answer travels, what it is filed under or how fast it comes.
    (
        *("model", "messages", "stream", "stream_options", "store", "metadata", "prompt_cache_key", "prediction"),
        *("prompt_cache_retention", "service_tier", "safety_identifier"),
    )
)
_REFUSED: dict[str, tuple[Any, ...]] = {  # and the values that mean nothing and harm nobody
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "seed": (),
    "audio": (),
    "modalities": (["text"],),
    "functions": ([],),
    "function_call": ("none",),
    "web_search_options": (),
    "verbosity": ("medium",),
}
_TRANSLATED = frozenset(
    (
        *("max_tokens", "max_completion_tokens", "stop", "user", "tools", "tool_choice", "parallel_tool_calls"),
        *("response_format", "reasoning_effort"),
    )
)


def messages_request(inference: Inference, model: str, longest_answer: int) -> bytes:
    """The body to send. `longest_answer`: max_tokens, which must be there, for a client that names none.

    Raises InvalidRequestError naming the field at fault.
    """
    if inference.endpoint != "chat.completions":
        raise InvalidRequestError("This model takes part in chats only.", param="model")
    chat = {name: msgspec.json.decode(value) for name, value in inference.fields.items() if bytes(value) != b"null"}
    _refuse(chat)
    turns = Turns()
    for index, message in enumerate(inference.messages):
        turns.add(message, f"messages[{index}]")
    told: dict[str, Any] = {"model": model, "max_tokens": inference.max_tokens or longest_answer}
    if turns.system:
        told["system"] = turns.system
    told["messages"] = turns.turns
    told |= {name: inference.fields[name] for name in chat if name not in _DROPPED | _TRANSLATED | _REFUSED.keys()}
    return msgspec.json.encode(told | _translated(inference, chat))


def _refuse(chat: dict[str, Any]) -> None:
    for name, harmless in _REFUSED.items():
        if name in chat and chat[name] not in harmless:
            message = f"The provider of this model does not support '{name}': name another model, or leave it out."
            raise InvalidRequestError(message, param=name, code="unsupported_parameter")


def _translated(inference: Inference, chat: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if inference.stream:
        told["stream"] = True
    if inference.stop:
        told["stop_sequences"] = inference.stop
    if user := inference.user or chat.get("safety_identifier"):
        told["metadata"] = {"user_id": user}
    if inference.tools:
        told["tools"] = anthropic_tools(inference.tools)
        choice = anthropic_tool_choice(chat.get("tool_choice"), chat.get("parallel_tool_calls"))
        if choice is not None:
            told["tool_choice"] = choice
    if config := _output_config(chat):
        told["output_config"] = config
    return told


def _output_config(chat: dict[str, Any]) -> dict[str, Any]:
    given = chat.get("output_config") or {}
    if not isinstance(given, dict):
        raise invalid("output_config", "expected an object")
    config: dict[str, Any] = dict(given)
    effort = chat.get("reasoning_effort")
    if effort not in (None, "none"):
        config["effort"] = "low" if effort == "minimal" else effort
    wanted = chat.get("response_format") or {"type": "text"}
    if wanted["type"] == "json_schema":
        schema = wanted["json_schema"].get("schema") or {"type": "object", "additionalProperties": False}
        config["format"] = {"type": "json_schema", "schema": schema}
    elif wanted["type"] == "json_object":
        message = "The provider of this model does not support the capability 'json_object': give a json_schema."
        raise InvalidRequestError(message, param="response_format", code="unsupported_parameter")
    return config
