"""Simon Willison's `llm`, told of the gateway by its extra-openai-models.yaml.

It has no way to demand a call: the engine's small model is asked, and may answer in words.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from steps import HELLO, INVENT, TEXTS, WEATHER, report, told

WAY = told()
os.environ |= {
    "LLM_USER_PATH": WAY.home,
    "OPENAI_API_KEY": WAY.key,
    "OPENAI_BASE_URL": WAY.base_url,
}
MODELS = [
    {
        "model_id": name,
        "model_name": model,
        "api_base": WAY.base_url,
        "api_key_name": "openai",
        "supports_schema": True,
        "supports_tools": True,
        "responses": name == "responder",
    }
    for name, model in (("tollhouse", WAY.model), ("responder", WAY.model), ("faulty", WAY.faulty_model))
]
Path(WAY.home, "extra-openai-models.yaml").write_text(json.dumps(MODELS))  # JSON is YAML

import llm  # noqa: E402  (which reads the file)
from llm.default_plugins.openai_models import OpenAIEmbeddingModel  # noqa: E402

COLD = {"temperature": 0, "max_tokens": 100}


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "llm", *arguments], capture_output=True, text=True)


def chat() -> Any:
    options = [word for name, value in COLD.items() for word in ("-o", name, str(value))]
    done = command("prompt", "-m", "tollhouse", "--no-stream", *options, HELLO)
    return {"text": done.stdout.removesuffix("\n"), "said": done.stderr}


def stream() -> Any:
    return {"pieces": [piece for piece in llm.get_model("tollhouse").prompt(HELLO, **COLD) if piece]}


def weather(city: str) -> str:
    """The weather of a city."""
    return "sunny"


def tools() -> Any:
    asked = [llm.get_model("tollhouse").chain(WEATHER, tools=[weather], stream=s, options=COLD) for s in (False, True)]
    (whole, *_), (streamed, *_) = answers = [list(chain.responses()) for chain in asked]
    return {
        "calls": [[call.name, call.arguments] for call in whole.tool_calls()],
        "streamed_calls": [[call.name, call.arguments] for call in streamed.tool_calls()],
        "after": answers[0][-1].text(),
    }


def structured() -> Any:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 120}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    return json.loads(llm.get_model("tollhouse").prompt(INVENT, schema=schema, **COLD).text())


def embeddings() -> Any:
    embedder = OpenAIEmbeddingModel("tollhouse", WAY.embedding_model)  # the file knows chats only
    return [list(vector) for vector in embedder.embed_multi(TEXTS)]


def responses() -> Any:
    whole, streamed = (llm.get_model("responder").prompt(HELLO, stream=stream, **COLD) for stream in (False, True))
    return {"text": whole.text(), "pieces": [piece for piece in streamed if piece]}


def error() -> Any:
    done = command("prompt", "-m", "faulty", HELLO)
    return {"status": int(done.stderr.split("Error code: ")[-1][:3]), "said": done.stderr}


report(
    chat=chat,
    stream=stream,
    tools=tools,
    structured=structured,
    embeddings=embeddings,
    responses=responses,
    error=error,
)
