"""Real clients, each in its own language and environment, take the same steps to the bundled engine and to a good
provider, whose answers are known to the letter. Nothing of theirs is changed but address, key and model names.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.journey import ENGINE, PROVIDER, Backend, take
from tests.faults.good_behaviour import AFTER_CALLS, CITIES, HELLO, PERSON
from tests.support.server import Gateway

pytestmark = pytest.mark.system

SCRIPTS = {
    "langchain-openai": "python/langchain_openai_journey.py",
    "litellm": "python/litellm_journey.py",
    "llama-index": "python/llama_index_journey.py",
    "llm": "python/llm_journey.py",
    "openai for node": "node/openai.mjs",
    "ai-sdk": "node/ai.mjs",
}
CANNOT_DEMAND_CALLS = ("llm",)
SPEAK_RESPONSES = ("langchain-openai", "litellm", "llm", "openai for node")
CALLS = [["weather", {"city": city}] for city in CITIES]

Report = dict[str, Any]


@pytest.fixture(scope="module")
def taken(gateway: Gateway, key: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Backend], Report]:
    """Each client's report of each backend; the journey is taken when it is first asked for."""
    reports: dict[tuple[str, Backend], Report] = {}

    def report(client: str, backend: Backend) -> Report:
        if (client, backend) not in reports:
            home = tmp_path_factory.mktemp("client")
            reports[client, backend] = take(SCRIPTS[client], gateway.base_url, key, backend, home)
        return reports[client, backend]

    return report


@pytest.fixture(params=SCRIPTS)
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(client: str, taken: Callable[[str, Backend], Report]) -> Report:
    return taken(client, ENGINE)


@pytest.fixture
def provider(client: str, taken: Callable[[str, Backend], Report]) -> Report:
    return taken(client, PROVIDER)


def went_well(step: Any) -> Any:
    assert "failed" not in step, step["failed"]
    return step


def test_a_chat(engine: Report, provider: Report) -> None:
    assert went_well(provider["chat"])["text"] == HELLO
    assert went_well(engine["chat"])["text"]


def test_a_stream(engine: Report, provider: Report) -> None:
    theirs, ours = went_well(provider["stream"])["pieces"], went_well(engine["stream"])["pieces"]
    assert "".join(theirs) == HELLO
    assert len(theirs) == -(-len(HELLO) // 4)
    assert provider["stream"].get("output_tokens", 7) == 7  # where the client tells it
    assert "".join(ours).strip() == engine["chat"]["text"].strip()
    assert len(ours) > 1


def test_tools_and_their_results(client: str, engine: Report, provider: Report) -> None:
    theirs, ours = went_well(provider["tools"]), went_well(engine["tools"])
    assert theirs == {"calls": CALLS, "streamed_calls": CALLS, "after": AFTER_CALLS}
    if client not in CANNOT_DEMAND_CALLS:
        for calls in (ours["calls"], ours["streamed_calls"]):
            assert [(name, list(arguments)) for name, arguments in calls] == [("weather", ["city"])]
    assert ours["after"]


def test_structured_output(engine: Report, provider: Report) -> None:
    assert went_well(provider["structured"]) == PERSON
    person = went_well(engine["structured"])
    assert set(person) == {"name", "age"}
    assert isinstance(person["age"], int)


def test_embeddings(engine: Report, provider: Report) -> None:
    assert went_well(provider["embeddings"]) == [[5.0, -0.5, 0.25], [8.0, -0.5, 0.25], [16.0, -0.5, 0.25]]
    cat, kitten, market = went_well(engine["embeddings"])
    assert len(cat) == 384
    assert _dot(cat, kitten) > 0.6 > _dot(cat, market)


def test_responses(client: str, engine: Report, provider: Report) -> None:
    if client not in SPEAK_RESPONSES:
        assert "responses" not in provider
        return
    theirs, ours = went_well(provider["responses"]), went_well(engine["responses"])
    assert theirs["text"] == "".join(theirs["pieces"]) == HELLO
    assert ours["text"].strip() == "".join(ours["pieces"]).strip() == engine["chat"]["text"].strip()
    assert min(len(theirs["pieces"]), len(ours["pieces"])) > 1


def test_an_error(engine: Report, provider: Report) -> None:
    theirs, ours = went_well(provider["error"]), went_well(engine["error"])
    assert (theirs["status"], ours["status"]) == (400, 404)
    assert "upstream says 400" in theirs["said"]
    assert "no-such-model" in ours["said"]
    for error, code in ((theirs, "code_400"), (ours, "model_not_found")):
        assert error.get("code", code) == code  # where the client tells it


def _dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
