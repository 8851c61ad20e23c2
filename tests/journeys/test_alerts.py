"""The rules in deploy/ ask for metrics that a gateway has."""

import re
from pathlib import Path

from tests.support.server import Gateway

RULES = Path(__file__).resolve().parents[2] / "deploy" / "alerts.yaml"


def test_alerts_ask_for_metrics_that_there_are(gateway: Gateway) -> None:
    asked = set(re.findall(r"\b(?:tollhouse|llm)_\w+", RULES.read_text()))
    _, _, body = gateway.get("/metrics")
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", body.decode(), re.MULTILINE))
    there = {f"{name}_bucket" if kind == "histogram" else name for name, kind in types.items()}
    assert len(asked) > 5
    assert asked <= there
