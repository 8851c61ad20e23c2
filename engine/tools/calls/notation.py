"""What a notation of calls is to everybody else: something that reads a call, and says in rules what one may be."""

from collections.abc import Collection, Mapping
from typing import Literal, Protocol

from engine.tools.types import Tool

State = Literal["open", "call", "done", "none"]


class CallReader(Protocol):
    """Reads one call, from its first character on, in whatever pieces it comes.

    `state` is "open" while it may become a call, "call" once it is one, "done" at its end, "none" if it is no call.
    """

    state: State
    raw: str  # all that was read
    name: str

    def read(self, text: str) -> tuple[str, str]:
        """The next piece of the call: what it has of the arguments' JSON text, and what stands behind the call."""
        ...

    def rest(self) -> str:
        """What was held back of the arguments, now that the answer ends in the middle of the call."""
        ...


class Notation(Protocol):
    @property
    def stands_alone(self) -> bool:
        """Whether an answer may begin with a call that nothing announces, not even a list's bracket."""
        ...

    def begins(self, text: str, names: Collection[str]) -> bool | None:
        """Whether a call may begin like this; None when it takes more text to say. `names`: of the functions."""
        ...

    def reader(self, tools: Mapping[str, Tool]) -> CallReader:
        """`tools` by their names; what names no other is no call."""
        ...

    def rules(self, rule: str, tool: Tool) -> list[str]:
        """Lark rules for a call of this tool; `rule` is what the first is called, and what the others begin with."""
        ...


def begins_with_name(text: str, names: Collection[str], followers: Collection[str]) -> bool | None:
    """Whether `text` begins with one of the names and one of what may follow them; None when that is still open."""
    beginnings = [name + follower for name in names for follower in followers]
    if any(text.startswith(beginning) for beginning in beginnings):
        return True
    return None if any(beginning.startswith(text) for beginning in beginnings) else False
