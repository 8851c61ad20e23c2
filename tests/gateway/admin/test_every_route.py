"""No route is left out: whatever is served below /v1 is held against a key's scope, and can be named in one."""

import pytest

from gateway.tenants.scopes import ENDPOINTS
from tests.gateway.admin.conftest import Admin

pytestmark = pytest.mark.anyio

JUDGE_MODELS = (  # those whose request names a model in a JSON body
    "chat/completions", "completions", "embeddings", "responses", "messages", "moderations", "audio/speech",
    "images/generations",
)  # fmt: skip


def routes(admin: Admin) -> list[str]:
    found = [route.path_format for route in admin.app.routes if route.path_format.startswith("/v1/")]
    assert len(found) > 10
    return [path for path in found if not path.startswith("/v1/models")]


async def test_every_route_can_be_named_in_a_scope(admin: Admin) -> None:
    for path in routes(admin):
        below = path.removeprefix("/v1/")
        assert any(below == name or below.startswith(f"{name}/") for name in ENDPOINTS), path


@pytest.mark.parametrize(
    ("scope", "code"),
    [({"endpoints": ["dashboard"]}, "endpoint_not_allowed"), ({"ip_ranges": ["192.0.2.0/24"]}, "ip_not_allowed")],
)
async def test_every_route_refuses_a_key_that_is_not_good_for_it(
    admin: Admin, scope: dict[str, list[str]], code: str
) -> None:
    key = await admin.key(**scope)
    for path in routes(admin):
        named = path.replace("{", "").replace("}", "")
        answers = [await admin.ask(method, named, {}, key=key) for method in ("POST", "GET", "DELETE")]
        served = [answer for answer in answers if answer.status not in (404, 405)]
        assert served, path
        for answer in served:
            assert answer.status == 403, (path, answer.text)
            error = answer.json["error"]
            assert error.get("code", code) == code  # Anthropic's shape has no code


@pytest.mark.parametrize("endpoint", JUDGE_MODELS)
async def test_every_route_that_takes_a_model_judges_it(admin: Admin, endpoint: str) -> None:
    key = await admin.key(models=["small"])
    body = {
        "model": "big", "input": "x", "prompt": "x", "voice": "alloy", "max_tokens": 5,
        "messages": [{"role": "user", "content": "x"}],
    }  # fmt: skip
    fields = {
        "chat/completions": ("model", "messages"),
        "completions": ("model", "prompt"),
        "messages": ("model", "messages", "max_tokens"),
        "audio/speech": ("model", "input", "voice"),
        "images/generations": ("model", "prompt"),
    }.get(endpoint, ("model", "input"))
    answer = await admin.ask("POST", f"/v1/{endpoint}", {name: body[name] for name in fields}, key=key)
    assert answer.status == 403, answer.text
    assert "may not use the model 'big'" in answer.json["error"]["message"]
