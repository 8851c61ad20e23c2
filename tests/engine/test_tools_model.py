"""Model files with tools in mind: markers that are control tokens, and templates of their own for tools."""

import json
from pathlib import Path

import pytest
from model_files import VOCABULARY, random_weights, write_folder, write_gguf

from engine.engine import Engine
from engine.loader.checkpoint import load_checkpoint
from engine.types import EngineOptions, GenerationRequest, SamplingParams
from tests.engine.tool_notations import CLOCK, NOW, TEMPLATES, joined

MARKERS = {"mistral": ["[TOOL_CALLS]"], "mistral-v13": ["[TOOL_CALLS]", "[ARGS]"], "llama3": ["<|python_tag|>"]}


def engine_of(path: Path, name: str) -> Engine:
    """A random model whose vocabulary has the markers in place of the bytes that stand last in it."""
    tokens, types = list(VOCABULARY), [1] * (len(VOCABULARY) - 1) + [3]
    for place, marker in enumerate(MARKERS[name], len(VOCABULARY) - 10):
        tokens[place], types[place] = marker, 3
    metadata = {"ggml__tokens": tokens, "ggml__token_type": types, "chat_template": TEMPLATES[name] + "{{ messages }}"}
    write_gguf(path, random_weights(), **{f"tokenizer__{key}": value for key, value in metadata.items()})  # type: ignore[arg-type]
    return Engine(EngineOptions(model=str(path), kv_cache_mb=4, num_threads=1))


@pytest.mark.parametrize("name", MARKERS)
def test_forced_calls_of_a_model_whose_markers_are_control_tokens(tmp_path: Path, name: str) -> None:
    engine = engine_of(tmp_path / "model.gguf", name)
    assert engine.tool_format.name == name
    request = GenerationRequest(
        request_id="1",
        prompt_token_ids=engine.encode_chat([{"role": "user", "content": "now?"}], [CLOCK.described()]),
        grammar=engine.tool_format.grammar([CLOCK], must_call=True, most=1),
        sampling=SamplingParams(max_tokens=60, temperature=0),
    )
    engine.add_request(request)
    text = ""
    while engine.has_work:
        for output in engine.step():
            assert output.delta is not None, output.error
            text += output.delta.text
    parser = engine.tool_format.parser([CLOCK])
    assert joined(parser.push(text) + parser.finish()) == ("", [NOW])


@pytest.mark.parametrize("name", MARKERS)
def test_markers_have_text_in_answers_and_stay_guarded_in_messages(tmp_path: Path, name: str) -> None:
    engine = engine_of(tmp_path / "model.gguf", name)
    for marker in MARKERS[name]:
        assert engine.tokenizer.token_bytes(engine.tokenizer.special_tokens[marker]) == marker.encode()
        prompt = engine.encode_chat([{"role": "user", "content": f"say {marker}"}])
        assert engine.tokenizer.special_tokens[marker] not in prompt
    assert engine.tokenizer.token_bytes(engine.tokenizer.special_tokens["<|end|>"]) == b""


def test_templates_by_name_are_found_in_each_kind_of_file(tmp_path: Path) -> None:
    weights = random_weights()
    path = write_gguf(
        tmp_path / "m.gguf", weights, tokenizer__chat_template="d", tokenizer__chat_template__tool_use="t"
    )
    folders = [write_folder(tmp_path / name, weights) for name in ("listed", "files", "one")]
    listed = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    (folders[0] / "tokenizer_config.json").write_text(json.dumps({"chat_template": listed}))
    (folders[1] / "chat_template.jinja").write_text("d")
    (folders[1] / "additional_chat_templates").mkdir()
    (folders[1] / "additional_chat_templates" / "tool_use.jinja").write_text("t")
    (folders[2] / "tokenizer_config.json").write_text(json.dumps({"chat_template": "d"}))
    found = [load_checkpoint(str(each)) for each in (path, *folders)]
    assert [each.chat_template for each in found] == ["d"] * 4
    assert [each.tool_template for each in found] == ["t", "t", "t", None]
