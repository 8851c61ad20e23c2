"""What every script here shares: where to go, and a report of its steps as one line of JSON.

It runs in any client's environment, and so needs nothing.
"""

import json
import sys
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

HELLO = "Say hello in one short sentence."
WEATHER = "What is the weather in Paris, Tokyo and Lima?"
INVENT = "Invent a person. Answer with JSON: name and age."
TEXTS = ["a cat", "a kitten", "the stock market"]


def told() -> SimpleNamespace:
    """base_url, key, model, embedding_model, faulty_model, parallel, home."""
    return SimpleNamespace(**json.loads(sys.argv[1]))


def report(**steps: Callable[[], Any]) -> None:
    """Every step is taken, whatever became of the others."""
    print(json.dumps({name: _outcome(step) for name, step in steps.items()}))


def _outcome(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except Exception:
        return {"failed": traceback.format_exc()[-2000:]}
