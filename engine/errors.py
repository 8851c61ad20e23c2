"""Everything the engine raises on purpose.

EngineError
├── ModelLoadError        the weights, tokenizer or config can't be used; says which tensor or key, and the remedy
├── InvalidRequest        this one request can't be served (`param` names the culprit); the batch goes on
│   ├── PromptTooLong
│   ├── SwitchedOff       this engine's options don't allow what the request asks for
│   └── TemplateError     the model has no chat template, or the template refused the messages
├── EngineOverloaded      the waiting queue is full, or too many grammars are being compiled
├── LogitsNotFinite       the model gave this one request NaN or infinity; the batch goes on
├── StepFailed            the model's forward pass failed: the requests that were running are lost, the engine goes on
└── EngineStopped         the engine was closed, or its thread died
"""


class EngineError(Exception):
    """Base of all errors of this package."""


class ModelLoadError(EngineError):
    pass


class InvalidRequest(EngineError):
    """One request's fault. `param` is the name of the sampling or request field at fault."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class PromptTooLong(InvalidRequest):
    def __init__(self, num_tokens: int, limit: int) -> None:
        super().__init__(
            f"the prompt has {num_tokens} tokens; this model's context holds {limit}, the answer included", "messages"
        )
        self.num_tokens = num_tokens
        self.limit = limit


class SwitchedOff(InvalidRequest):
    pass


class TemplateError(InvalidRequest):
    def __init__(self, message: str) -> None:
        super().__init__(message, "messages")


class EngineOverloaded(EngineError):
    pass


class LogitsNotFinite(EngineError):
    def __init__(self) -> None:
        super().__init__("the model computes NaN or infinity for this request: its weights may be damaged")


class StepFailed(EngineError):
    pass


class EngineStopped(EngineError):
    pass
