"""GGUF and safetensors files: written here, read back, damaged in every way that a download can be."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from model_files import HIDDEN, VOCABULARY, random_weights, write_folder, write_gguf
from steps import make_request, whole

from engine.errors import ModelLoadError
from engine.loader.checkpoint import load_checkpoint
from engine.loader.gguf_file import GGUFFile
from engine.loader.gguf_names import rotary_row_order
from engine.plan import StepPlan
from engine.runner import Runner
from engine.types import EngineOptions


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return random_weights()


def runner_of(path: Path) -> Runner:
    return Runner(EngineOptions(model=str(path), kv_cache_mb=4, num_threads=1))


def logits_of(runner: Runner, prompt: list[int]) -> torch.Tensor:
    return runner.logits(StepPlan([whole(make_request(prompt, range(4)))]))[0]


def test_both_formats_of_one_model_run_alike(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    runners = [
        runner_of(write_gguf(tmp_path / "model.gguf", weights)),
        runner_of(write_folder(tmp_path / "one", weights)),
        runner_of(write_folder(tmp_path / "three", weights, shards=3)),
    ]
    prompt = runners[0].tokenizer.encode("abracadabra 42")
    assert runners[1].tokenizer.encode("abracadabra") == runners[0].tokenizer.encode("abracadabra")
    first, second, third = (logits_of(runner, prompt) for runner in runners)
    assert torch.equal(first, second)
    assert torch.equal(first, third)
    assert all(runner.tokenizer.eos_ids == {len(VOCABULARY) - 1} for runner in runners)
    assert not runners[0].info.has_chat_template


@pytest.mark.parametrize("write", [write_gguf, write_folder])
def test_progress_reaches_the_end_when_the_model_is_loaded(
    tmp_path: Path, weights: dict[str, torch.Tensor], write: Callable[..., Path]
) -> None:
    told: list[tuple[int, int]] = []
    path = write(tmp_path / "model", weights)
    Runner(EngineOptions(model=str(path), kv_cache_mb=4), lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert len(told) == len(weights)
    assert told[-1][0] > 0.95 * told[-1][1]


def test_rows_of_q_and_k_are_put_back(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    checkpoint = load_checkpoint(str(write_gguf(tmp_path / "model.gguf", weights)))
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.down_proj"):
        full = f"model.layers.1.{name}.weight"
        assert torch.equal(checkpoint.weights.get(full, tuple(weights[full].shape)), weights[full])
    assert rotary_row_order(16, 2)[:8].tolist() == [0, 2, 4, 6, 1, 3, 5, 7]


def test_a_head_of_its_own_replaces_the_embedding(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    head = weights["model.embed_tokens.weight"].roll(1, dims=0)  # every token takes its predecessor's row
    tied = runner_of(write_gguf(tmp_path / "a.gguf", weights))
    untied = runner_of(write_gguf(tmp_path / "b.gguf", weights, head))
    assert torch.equal(logits_of(untied, [5, 6, 7]), logits_of(tied, [5, 6, 7]).roll(1))
    assert untied.info.num_parameters - tied.info.num_parameters == len(VOCABULARY) * HIDDEN


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:10], "shorter than a GGUF header"),
        (lambda data: b"PK\x03\x04" + data[4:], "not a GGUF file"),
        (lambda data: data[:4] + b"\x09" + data[5:], "version 9"),
        (lambda data: data[:200], "header unreadable at byte"),
        (lambda data: data[:-1000], r"tensor blk\.1\.\S+ ends beyond"),
        (lambda data: data[:24] + b"\xff" * 8 + data[32:], "header unreadable"),
        (lambda data: data.replace(b"llama.attention.layer_norm", b"llama.attention.other_norm"), "is missing"),
        (lambda data: data.replace(b"blk.1.attn_k.", b"blk.1.attn_x."), r"tensor blk\.1\.attn_k\.weight is missing"),
        (lambda data: data.replace(b"llama", b"mamba"), "no model family 'mamba'"),
    ],
)  # fmt: skip
def test_a_damaged_gguf_file_is_refused_by_name(
    tmp_path: Path, weights: dict[str, torch.Tensor], damage: object, message: str
) -> None:
    path = write_gguf(tmp_path / "model.gguf", weights)
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(ModelLoadError, match=message):
        runner_of(path)


@pytest.mark.parametrize("write", [write_gguf, write_folder])
def test_a_tensor_that_the_model_has_no_place_for_is_refused_by_name(
    tmp_path: Path, weights: dict[str, torch.Tensor], write: Callable[..., Path]
) -> None:
    fewer = {"llama__block_count": 1} if write is write_gguf else {"num_hidden_layers": 1}
    with pytest.raises(ModelLoadError, match=r"tensor (blk|model\.layers)\.1\.\S+ \(and 8 more\) has no place in the"):
        runner_of(write(tmp_path / "model", weights, **fewer))


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("model.layers.0.self_attn.rotary_emb.inv_freq", {}),
        ("model.layers.0.self_attn.k_proj.k_scale", {}),
        ("lm_head.weight", {"tie_word_embeddings": True}),
    ],
)
def test_tensors_that_say_nothing_new_are_no_reason_to_refuse(
    tmp_path: Path, weights: dict[str, torch.Tensor], name: str, config: dict[str, object]
) -> None:
    extra = weights["model.embed_tokens.weight"].clone()
    runner = runner_of(write_folder(tmp_path / "with", weights | {name: extra}, **config))
    plain = runner_of(write_folder(tmp_path / "plain", weights, **config))
    assert torch.equal(logits_of(runner, [5, 6, 7]), logits_of(plain, [5, 6, 7]))


def test_a_head_that_the_config_does_not_tie_is_none_of_them(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    with pytest.raises(ModelLoadError, match=r"tensor lm_head\.bias has no place"):
        runner_of(write_folder(tmp_path / "m", weights | {"lm_head.bias": torch.zeros(len(VOCABULARY))}))


def test_values_that_are_not_finite_are_refused(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    spoilt = weights[name].clone()
    spoilt[3, 3] = float("nan")
    with pytest.raises(ModelLoadError, match=r"blk\.0\.ffn_up\.weight holds values that are not finite"):
        runner_of(write_gguf(tmp_path / "model.gguf", weights | {name: spoilt}))


def test_a_tensor_of_another_shape_is_refused(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    with pytest.raises(ModelLoadError, match=r"ffn_up\.weight has shape \[96, 32\], the config calls for \[96, 64\]"):
        runner_of(write_gguf(tmp_path / "model.gguf", weights | {name: weights[name][:, :32].contiguous()}))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json: missing"),
        (lambda f: (f / "config.json").write_text("{"), "not valid JSON"),
        (lambda f: (f / "config.json").write_text("{}"), "key .* is missing"),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json: missing"),
        (lambda f: next(f.glob("*.safetensors")).unlink(), "no .safetensors file"),
        (lambda f: next(f.glob("*.safetensors")).write_bytes(b"\x08"), "unreadable"),
        (lambda f: write_folder(f, {"x": torch.zeros(1)}), r"embed_tokens\.weight is missing"),
    ],
)
def test_a_damaged_folder_is_refused_by_name(
    tmp_path: Path, weights: dict[str, torch.Tensor], spoil: object, message: str
) -> None:
    folder = write_folder(tmp_path / "model", weights)
    spoil(folder)  # type: ignore[operator]
    with pytest.raises(ModelLoadError, match=message):
        runner_of(folder)


def test_rope_scaling_is_read_or_refused(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    llama3 = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }  # fmt: skip
    plain, stretched = (
        logits_of(runner_of(write_folder(tmp_path / "model", weights, rope_scaling=rope)), list(range(60)))
        for rope in (None, llama3)
    )
    assert 0.001 < (plain - stretched).abs().max() < 5
    with pytest.raises(ModelLoadError, match="'dynamic' is not supported"):
        runner_of(write_folder(tmp_path / "model", weights, rope_scaling={"rope_type": "dynamic", "factor": 2.0}))


def test_the_pulled_model_is_mapped_not_copied(smollm2_path: Path) -> None:
    file = GGUFFile(smollm2_path)
    assert not any(tensor.data.flags.owndata for tensor in file.tensors.values())
    assert sum(tensor.data.nbytes for tensor in file.tensors.values()) > 90_000_000


NAN = float("nan")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"general__alignment": "x"}, "header unreadable"),
        ({"general__alignment": [32]}, "header unreadable"),
        ({"llama__attention__head_count": "two"}, "llama.attention.head_count is 'two', no finite number"),
        ({"llama__attention__head_count": [2]}, "head_count is .* no finite number"),
        ({"llama__attention__head_count": NAN}, "head_count is 'nan', no finite number"),
        ({"llama__attention__head_count": 1.5}, "head_count is 1.5, no whole number"),
        ({"llama__attention__head_count": 0}, "num_heads = 0"),
        ({"llama__attention__layer_norm_rms_epsilon": "x"}, "epsilon is 'x'"),
        ({"llama__attention__layer_norm_rms_epsilon": NAN}, "epsilon is 'nan'"),
        ({"llama__attention__layer_norm_rms_epsilon": 0.0}, "rms_norm_eps = 0.0"),
        ({"llama__context_length": 0}, "context_length = 0"),
        ({"llama__context_length": -5}, "context_length = -5"),
        ({"llama__context_length": 2**30}, "context_length = 1073741824, more than"),
        ({"llama__rope__freq_base": 0.0}, "rope_theta = 0.0"),
        ({"llama__rope__scaling__type": "linear"}, "rope.scaling.factor is missing"),
        ({"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 0.0}, "factor = 0.0"),
        ({"llama__rope__dimension_count": 16}, "rope.dimension_count .* of 16 in heads of 32"),
        ({"split__count": 3}, "one of 3 parts of a model; join them"),
        ({"tokenizer__chat_template": 3}, "the chat template is int"),
        ({"tokenizer__ggml__token_type": [1, 3]}, "token_type has 2 entries"),
        ({"tokenizer__ggml__eos_token_id": [1]}, "unreadable|no token id"),
        ({"tokenizer__ggml__tokens": 7}, "tokens is missing or no list of texts"),
        ({"bias": "blk.0.attn_q.bias"}, r"attn_k\.bias is missing"),
    ],
)
def test_figures_that_no_gguf_file_may_have_are_refused(
    tmp_path: Path, weights: dict[str, torch.Tensor], metadata: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        runner_of(write_gguf(tmp_path / "model.gguf", weights, **metadata))  # type: ignore[arg-type]


def test_arrays_within_arrays_without_end_are_refused(tmp_path: Path) -> None:
    nested = struct.pack("<IQ", 9, 1) * 5000 + struct.pack("<IQ", 4, 0)
    header = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + struct.pack("<Q", 1) + b"x" + struct.pack("<I", 9)
    (tmp_path / "model.gguf").write_bytes(header + nested)
    with pytest.raises(ModelLoadError, match="header unreadable"):
        runner_of(tmp_path / "model.gguf")


@pytest.mark.parametrize("shape", [(), (0, HIDDEN)])
def test_an_embedding_that_is_no_matrix_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = write_gguf(tmp_path / "model.gguf", {"model.embed_tokens.weight": torch.zeros(1, HIDDEN)})
    data = path.read_bytes()
    at = data.index(b"token_embd.weight") + len(b"token_embd.weight")
    old = struct.pack("<I2Q", 2, HIDDEN, 1)
    assert data[at : at + len(old)] == old
    new = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
    path.write_bytes(data[:at] + new + data[at + len(old) :])
    with pytest.raises(ModelLoadError, match=r"no matrix|vocab_size = 0"):
        runner_of(path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"attention_bias": True}, r"q_proj\.bias is missing"),
        ({"mlp_bias": True}, r"gate_proj\.bias is missing"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"hidden_act": ["silu"]}, r"hidden_act .* is not supported"),
        ({"partial_rotary_factor": 0.5}, "of 16 in heads of 32"),
        ({"rope_scaling": "x"}, "config.json: unreadable"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor = 0"),
        ({"rope_scaling": {"rope_type": "linear"}}, "key 'factor' is missing"),
        ({"num_attention_heads": 0, "num_key_value_heads": 0}, "num_heads = 0"),
        ({"num_attention_heads": "two"}, "config.json: unreadable"),
        ({"max_position_embeddings": -5}, "context_length = -5"),
        ({"max_position_embeddings": 2**50}, "more than"),
        ({"max_position_embeddings": float("inf")}, "config.json: unreadable"),
        ({"vocab_size": -1}, "vocab_size = -1"),
        ({"vocab_size": 0}, "vocab_size = 0"),
        ({"rms_norm_eps": NAN}, "rms_norm_eps = nan"),
        ({"rope_theta": -1}, "rope_theta = -1"),
        ({"eos_token_id": "x"}, "eos token's id is 'x'"),
        ({"eos_token_id": [[1]]}, "unreadable"),
    ],
)
def test_figures_that_no_config_may_have_are_refused(
    tmp_path: Path, weights: dict[str, torch.Tensor], config: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        runner_of(write_folder(tmp_path / "model", weights, **config))  # type: ignore[arg-type]


def test_a_context_longer_than_the_cache_takes_no_memory(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    runner = runner_of(write_gguf(tmp_path / "model.gguf", weights, llama__context_length=1 << 24))
    assert runner.info.context_length == 1 << 24
    assert runner._num_positions == runner.num_blocks * runner.block_size
