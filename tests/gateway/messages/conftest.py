"""A gateway with providers of both APIs, and requests of Anthropic's clients."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.wire.messages.dialect import MessagesDialect
from tests.faults.anthropic_behaviours import CLAUDES
from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.in_process import CONFIG, Gate, Line, open_gate

CLAUDE = """
[[provider]]
name = "anthropic"
kind = "anthropic"
base_url = "{upstream}"
api_key_env = "CLAUDE_KEY"
max_retries = 0
first_token_timeout_s = 2.0
idle_timeout_s = 0.3
[[provider]]
name = "patient"
kind = "anthropic"
base_url = "{upstream}"
max_retries = 1
[[provider]]
name = "new"
base_url = "{upstream}"
max_tokens_field = "max_completion_tokens"
[[model]]
name = "new/*"
provider = "new"
[[model]]
name = "claude*"
provider = "anthropic"
input_usd_per_mtok = 1.0
output_usd_per_mtok = 2.0
cached_input_usd_per_mtok = 0.1
[[model]]
name = "sonnet"
provider = "anthropic"
upstream_name = "claude"
max_output_tokens = 77
[[model]]
name = "patient"
provider = "patient"
upstream_name = "claude-recovers"
"""


@pytest.fixture(scope="session")
async def _claude_gate(
    anyio_backend: Any, _running_upstream: MisbehavingUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gate]:
    for name, script in CLAUDES.items():
        _running_upstream.on(name, script)
    async with AsyncExitStack() as stack:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("TOLLHOUSE_HOME", str(tmp_path_factory.mktemp("claude")))
            patched.setenv("CLAUDE_KEY", "sk-claude-secret")
            gate = await open_gate(stack, _running_upstream, CONFIG + CLAUDE)
        yield gate


@pytest.fixture
async def gate(_claude_gate: Gate, upstream: MisbehavingUpstream) -> Gate:
    """One gateway for all these tests, each with a tenant of its own."""
    await _claude_gate.start_over()
    return _claude_gate


def body(model: str, **fields: Any) -> dict[str, Any]:
    return {
        "model": model,
        "max_tokens": 50,
        "messages": [{"role": "user", "content": "Where is the harbour?"}],
    } | fields


async def ask(gate: Gate, model: str, *headers: tuple[str, str], line: Line | None = None, **fields: Any) -> Line:
    return await gate.ask(body(model, **fields), dialect=MessagesDialect(headers), line=line)


def told(line: Line) -> list[dict[str, Any]]:
    """The events of a stream, comments left out."""
    lines = [each[6:] for each in line.body.split(b"\n") if each.startswith(b"data: ")]
    return [json.loads(each) for each in lines]
