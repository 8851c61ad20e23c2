"""How a family of models writes its calls. Knows no template and no text."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Syntax:
    """Calls are JSON objects {"name": ..., arguments_key: ...}, each between `opening` and `closing`.

    All calls of an answer stand between `begin` and `end`, with `between` between them. `markers` are the texts that
    only ever announce calls. `is_bare`: an answer may begin with a call that nothing announces, because the family's
    marker is a control token, which has no text.
    """

    markers: tuple[str, ...]
    end_marker: str = ""
    opening: str = ""
    closing: str = ""
    begin: str = ""
    end: str = ""
    between: str = "\n"
    arguments_key: str = "arguments"
    is_bare: bool = False
    is_single: bool = False  # the family knows one call an answer


HERMES = Syntax(markers=("<tool_call>",), end_marker="</tool_call>", opening="<tool_call>\n", closing="\n</tool_call>")
"""Hermes 2 and 3, Qwen 2.5 and 3: https://github.com/NousResearch/Hermes-Function-Calling."""

LLAMA3 = Syntax(markers=("<|python_tag|>",), arguments_key="parameters", is_bare=True, is_single=True)
"""https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/: {"name": ..., "parameters": ...} and no more."""

MISTRAL = Syntax(markers=("[TOOL_CALLS]",), begin="[", end="]", between=", ", is_bare=True)
"""Mistral's tokenisers v2 and v3: https://docs.mistral.ai/capabilities/function_calling/."""

PHI4_MINI = Syntax(
    markers=("functools", "<|tool_call|>"), end_marker="<|/tool_call|>", begin="functools[", end="]", between=", "
)
"""https://github.com/microsoft/PhiCookBook, function calling with Phi-4-mini."""
