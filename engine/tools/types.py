"""What tools are, and the pieces that an answer with calls comes in."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call. `parameters`: a JSON schema; without one it takes none."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool = False  # its arguments are held to the schema even where the model is free to call or not

    def described(self) -> dict[str, Any]:
        """As chat templates expect it: OpenAI's shape, with nothing left out, which some of them can't bear."""
        parameters = self.parameters or {"type": "object", "properties": {}}
        function = {"name": self.name, "description": self.description or "", "parameters": parameters}
        return {"type": "function", "function": function}


@dataclass(slots=True, frozen=True)
class Text:
    text: str


@dataclass(slots=True, frozen=True)
class CallBegins:
    index: int  # of the answer's calls, from 0
    id: str
    name: str


@dataclass(slots=True, frozen=True)
class Arguments:
    """A piece of a call's arguments. All of them joined are a JSON object, if the model wrote one to its end."""

    index: int
    text: str


Piece: TypeAlias = Text | CallBegins | Arguments
