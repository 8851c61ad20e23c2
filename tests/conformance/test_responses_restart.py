"""A gateway that dies or is stopped: what it had stored is there afterwards, and what it was doing has failed."""

import time
from pathlib import Path

import openai

from tests.conformance.conftest import CONFIG
from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.server import Gateway


def test_a_restart_is_honest_about_what_ran(upstream: MisbehavingUpstream, tmp_path: Path) -> None:
    impatient = "[server]\nshutdown_grace_s = 1.0\n" + CONFIG.format(upstream=upstream.base_url)
    with Gateway.over(impatient, tmp_path) as gateway:
        key = gateway.key("acme")
        with openai.OpenAI(base_url=gateway.base_url, api_key=key, max_retries=5) as client:

            def start_one(text: str) -> str:
                before = len(upstream.of("slow"))
                id = client.responses.create(model="probe/slow", input=text, background=True).id
                assert upstream.wait_until(lambda: len(upstream.of("slow")) > before)
                return id

            whole = client.responses.create(model="probe/ok", input="stored before it was said")
            killed = start_one("killed")
            gateway.kill()
            gateway.start()
            assert client.responses.retrieve(whole.id) == whole
            assert client.responses.retrieve(killed).status in ("queued", "in_progress", "failed")
            stopped = start_one("stopped")
            gateway.stop()  # and the upstream takes longer than the grace
            gateway.start()
            assert client.responses.retrieve(stopped).status == "failed"
            deadline = time.monotonic() + 30
            while (found := client.responses.retrieve(killed)).status != "failed":
                assert time.monotonic() < deadline
                time.sleep(0.2)
            assert found.error is not None
            assert "was stopped" in found.error.message
            goes_on = client.responses.create(model="probe/ok", input="go on", previous_response_id=whole.id)
            assert goes_on.status == "completed"
