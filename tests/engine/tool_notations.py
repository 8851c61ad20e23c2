"""Two tools, a small template in each notation, and answers read in any pieces."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from engine.tools.format import format_for
from engine.tools.types import Arguments, CallBegins, Piece, Text, Tool

WEATHER = Tool(
    name="get_weather",
    description="The weather now.",
    parameters={
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city"],
        "$defs": {"city": {"type": "string", "maxLength": 8}},
    },
)
CLOCK = Tool(name="clock")
TOOLS = [WEATHER, CLOCK]

TEMPLATES = {
    "hermes": '{% if tools %}<tool_call>\n{"name": }{% endif %}',
    "qwen3-coder": "{% if tools %}<tool_call>\n<function=f>\n<parameter=p>{% endif %}",
    "mistral": "{% if tools %}[TOOL_CALLS]{% endif %}",
    "mistral-v11": "{% if tools %}[TOOL_CALLS][CALL_ID][ARGS]{% endif %}",
    "mistral-v13": "{% if tools %}[TOOL_CALLS][ARGS]{% endif %}",
    "llama3": "{% if tools %}<|python_tag|>{% endif %}",
    "phi4-mini": "{% if 'tools' in message %}<|tool|>{% endif %}",
    "gemma": "<start_of_turn>{{ messages }}",
    "described": "{{ messages }}",
}
FORMATS = {name: format_for(source) for name, source in TEMPLATES.items()}

CALL = '{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}'
XML_CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
    "</function>\n</tool_call>"
)
ROME = ("get_weather", {"city": "Rome", "days": 2})
NOW = ("clock", {})


def parse(
    name: str, text: str, cuts: list[int] | None = None, most: int | None = None, tools: Sequence[Tool] = TOOLS
) -> list[Piece]:
    parser = FORMATS[name].parser(tools, most)
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts or ())})
    pieces = [piece for begin, end in itertools.pairwise(places) for piece in parser.push(text[begin:end])]
    return pieces + parser.finish()


def written(pieces: list[Piece]) -> tuple[str, list[tuple[str, str]]]:
    """The text, and the calls with their arguments as they were written."""
    text = "".join(piece.text for piece in pieces if isinstance(piece, Text))
    names = [piece.name for piece in pieces if isinstance(piece, CallBegins)]
    arguments = ["" for _ in names]
    for piece in pieces:
        if isinstance(piece, Arguments):
            arguments[piece.index] += piece.text
    return text, list(zip(names, arguments, strict=True))


def joined(pieces: list[Piece]) -> tuple[str, list[tuple[str, Any]]]:
    text, calls = written(pieces)
    return text, [(name, json.loads(arguments)) for name, arguments in calls]
