"""The plain text of an XML call's values as JSON, by what their schema allows."""

from typing import Any

from engine.tools.calls.json_text import as_json, read_json
from engine.tools.calls.python_literals import literal
from engine.tools.schemas import fits, types_of


def json_of(text: str, schema: dict[str, Any]) -> str:
    """A text that can't be what the schema allows stays a text: nothing is lost."""
    types = types_of(schema)
    if types != {"string"}:
        for read in (read_json, literal):
            try:
                value = read(text.strip())
                if fits(value, types):
                    return as_json(value)
            except (ValueError, TypeError):
                continue
    return as_json(text)
