"""OpenAI's own schemas as a check: `conforms(answer, "CreateChatCompletionResponse")`."""

import functools
import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parent / "schemas"


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    for file in sorted(FOLDER.glob("*.jsonschema.json")):
        document = json.loads(file.read_text())
        if name in document["components"]["schemas"]:
            return Draft202012Validator(document | {"$ref": f"#/components/schemas/{name}"})
    raise LookupError(f"no schema {name!r} in {FOLDER}")


def conforms(answer: bytes | Any, name: str) -> Any:
    """The decoded answer; raises jsonschema.ValidationError when it is not what OpenAI would send (or take)."""
    decoded = json.loads(answer) if isinstance(answer, bytes) else answer
    _validator(name).validate(decoded)
    return decoded
