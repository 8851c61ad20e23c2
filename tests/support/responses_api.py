"""Requests of the Responses API, parsed, for tests of all that follows."""

import json
from typing import Any

from gateway.wire.responses_api.request import Creation, parse_create

ID = "resp_" + "0" * 32
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


def create(**fields: Any) -> Creation:
    body = {"model": "m", "input": "Where is the harbour?"} | fields
    return parse_create(json.dumps(body).encode(), ID)
