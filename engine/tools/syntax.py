"""How a family of models writes its calls. Knows no template and no text."""

from dataclasses import dataclass

from engine.tools.calls.json_call import JsonCall
from engine.tools.calls.named_call import NamedCall
from engine.tools.calls.notation import Notation
from engine.tools.calls.python_call import PythonCall
from engine.tools.calls.xml_call import XmlCall


@dataclass(slots=True, frozen=True)
class Syntax:
    """Each call stands between `opening` and `closing`, all calls of an answer between `begin` and `end`.

    `notations`: how a call is written, and then how it is read, too. `markers` are the texts that announce calls; they
    and `control_tokens` may be control tokens of the model. `is_bare`: an answer may begin with a call that nothing
    announces. `is_announced`: as a rule, none comes without the first of the markers.
    """

    markers: tuple[str, ...]
    notations: tuple[Notation, ...] = (JsonCall(),)
    end_marker: str = ""
    opening: str = ""
    closing: str = ""
    begin: str = ""
    end: str = ""
    between: str = "\n"
    control_tokens: tuple[str, ...] = ()
    is_bare: bool = False
    is_announced: bool = True
    is_single: bool = False  # the family knows one call an answer

    @property
    def tokens(self) -> tuple[str, ...]:
        """What an answer has to show even where the model's vocabulary has it as a control token."""
        return (*self.markers, *filter(None, [self.end_marker]), *self.control_tokens)


HERMES = Syntax(markers=("<tool_call>",), end_marker="</tool_call>", opening="<tool_call>\n", closing="\n</tool_call>")
"""Hermes 2 and 3, Qwen 2.5 and 3: https://github.com/NousResearch/Hermes-Function-Calling."""

QWEN3_CODER = Syntax(
    markers=("<tool_call>", "<function="),
    notations=(XmlCall(), JsonCall()),
    end_marker="</tool_call>",
    opening="<tool_call>\n",
    closing="\n</tool_call>",
)
"""Qwen3-Coder and Qwen 3.5. The models forget <tool_call> at times."""

LLAMA3 = Syntax(
    markers=("<|python_tag|>",),
    notations=(JsonCall("parameters"), PythonCall()),
    is_bare=True,
    is_announced=False,
    is_single=True,
)
"""https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/: {"name": ..., "parameters": ...} and no more.

Llama 3.2 also knows lists of Python's calls: https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_2/.
"""

MISTRAL = Syntax(markers=("[TOOL_CALLS]",), begin="[TOOL_CALLS][", end="]", between=", ", is_bare=True)
"""Mistral's tokenisers v2 and v3: https://docs.mistral.ai/capabilities/function_calling/."""

MISTRAL_V11 = Syntax(
    markers=("[TOOL_CALLS]",),
    notations=(NamedCall(has_id=True), JsonCall()),
    opening="[TOOL_CALLS]",
    between="",
    control_tokens=("[CALL_ID]", "[ARGS]"),
)
"""Mistral's tokeniser v11: https://github.com/mistralai/mistral-common."""

MISTRAL_V13 = Syntax(
    markers=("[TOOL_CALLS]",),
    notations=(NamedCall(), JsonCall()),
    opening="[TOOL_CALLS]",
    between="",
    control_tokens=("[CALL_ID]", "[ARGS]"),
)
"""The same without ids."""

GEMMA = Syntax(
    markers=("```tool_code", "```json"),
    notations=(PythonCall(), JsonCall("parameters")),
    end_marker="```",
    begin="[",
    end="]",
    between=", ",
    is_bare=True,
    is_announced=False,
)
"""https://ai.google.dev/gemma/docs/capabilities/function-calling: [name(a=1), ...], and often in a fence."""

PHI4_MINI = Syntax(
    markers=("functools", "<|tool_call|>"), end_marker="<|/tool_call|>", begin="functools[", end="]", between=", "
)
"""https://github.com/microsoft/PhiCookBook, function calling with Phi-4-mini."""
