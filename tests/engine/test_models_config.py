"""config.json as models on the hub have it, in the keys of transformers 4; and what is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from families import make_family

from engine.errors import ModelLoadError
from engine.loader.checkpoint import load_checkpoint
from engine.loader.folder_config import read_config
from engine.models.config import ModelConfig
from engine.models.registry import build_model
from engine.models.rope import Llama3Scaling, LongRopeScaling, Rope, YarnScaling
from kernels.reference import ReferenceOperations

LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072,
    "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
    "vocab_size": 128256,
}  # fmt: skip


def config_of(**figures: Any) -> ModelConfig:
    return read_config(LLAMA | figures, Path("model"))


def test_llama_3_2() -> None:
    scaling = {
        "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    }  # fmt: skip
    config = config_of(rope_scaling=scaling, rope_theta=500000.0, tie_word_embeddings=True, hidden_act="silu")
    stretched = Llama3Scaling(factor=32, low_freq_factor=1, high_freq_factor=4, original_context_length=8192)
    assert config.rope == Rope(500000.0, 64, stretched)
    assert (config.head_dim, config.tied, config.windows, config.experts) == (64, True, (), None)


def test_mistral_has_a_window_unless_it_says_none() -> None:
    assert config_of(model_type="mistral", sliding_window=4096).windows == (4096,) * 16
    assert config_of(model_type="mistral").windows == (4096,) * 16  # as transformers assumes
    assert config_of(model_type="mistral", sliding_window=None).windows == ()


def test_qwen_has_a_window_only_if_it_is_switched_on_and_in_the_upper_layers() -> None:
    figures = {"model_type": "qwen2", "sliding_window": 131072, "max_window_layers": 12}
    assert config_of(**figures).windows == ()
    assert config_of(**figures, use_sliding_window=False).windows == ()
    assert config_of(**figures, use_sliding_window=True).windows == (None,) * 12 + (131072,) * 4


def test_qwens_yarn_stretches_the_context() -> None:
    yarn = {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}
    config = config_of(model_type="qwen2", max_position_embeddings=32768, rope_scaling=yarn)
    assert config.context_length == 131072
    assert isinstance(config.rope.scaling, YarnScaling)
    assert config.rope.scaling.attention_factor == pytest.approx(1.1386, abs=1e-4)


def test_gemma_2_alternates_windows_and_bounds_scores_and_logits() -> None:
    figures = {"model_type": "gemma2", "hidden_act": "gelu_pytorch_tanh", "num_hidden_layers": 4}
    config = config_of(**figures, sliding_window=4096, query_pre_attn_scalar=144, head_dim=128)
    assert config.windows == (4096, None, 4096, None)
    assert (config.query_scale_size, config.attention_softcap, config.logit_softcap) == (144, 50, 30)


def test_gemma_3_sees_everything_in_every_sixth_layer_and_rotates_it_otherwise() -> None:
    figures = {"model_type": "gemma3_text", "rope_theta": 1000000, "rope_local_base_freq": 10000, "head_dim": 256}
    config = config_of(**figures, sliding_window=512, sliding_window_pattern=6, rope_scaling=None)
    assert config.architecture == "gemma3"
    assert config.windows == ((512,) * 5 + (None,)) * 2 + (512,) * 4
    assert (config.rope, config.local_rope) == (Rope(1000000.0, 256), Rope(10000.0, 256))
    stretched = config_of(**figures, sliding_window=512, rope_scaling={"factor": 8.0, "rope_type": "linear"})
    assert stretched.rope.scaling is not None
    assert stretched.local_rope == Rope(10000.0, 256)


def test_phi_3_with_a_long_context() -> None:
    factors = {"short_factor": [1.05] * 32, "long_factor": [1.5] * 32}
    figures = {"model_type": "phi3", "original_max_position_embeddings": 4096, "sliding_window": 262144}
    config = config_of(**figures, rope_scaling={"type": "su", **factors})
    assert isinstance(config.rope.scaling, LongRopeScaling)
    assert config.rope.scaling.original_context_length == 4096
    assert config.rope.scaling.attention_factor == pytest.approx(1.1902, abs=1e-4)  # sqrt(1 + ln 32 / ln 4096)


def test_experts_of_both_kinds() -> None:
    qwen = config_of(
        model_type="qwen3_moe", num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True,
        decoder_sparse_step=1, mlp_only_layers=[3], max_window_layers=48, sliding_window=None, head_dim=128,
    ).experts  # fmt: skip
    assert qwen is not None
    assert (qwen.num, qwen.per_token, qwen.intermediate_size, qwen.normalise) == (128, 8, 768, True)
    assert qwen.dense_layers == {3}
    mixtral = config_of(model_type="mixtral", num_local_experts=8, num_experts_per_tok=2, sliding_window=None)
    assert mixtral.experts is not None
    assert (mixtral.experts.num, mixtral.experts.intermediate_size, mixtral.experts.normalise) == (8, 8192, True)
    assert mixtral.rope.theta == 1e6  # as transformers assumes


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"text_config": {"hidden_size": 1}}, "text_config is not supported"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention is not supported"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope scaling 'dynamic' is not supported"),
        ({"sliding_window": 64, "layer_types": ["chunked_attention"] * 16}, "'chunked_attention' is not supported"),
        ({"sliding_window": 64, "layer_types": ["full_attention"] * 3}, "3 kinds of attention for 16 layers"),
        ({"sliding_window": -1}, "sliding_window = -1"),
        ({"sliding_window": 64, "sliding_window_pattern": 0}, "sliding_window_pattern = 0"),
        ({"num_hidden_layers": 1 << 40}, "num_layers = 1099511627776, more than"),
        ({"num_experts": 4, "num_experts_per_tok": 5}, "5 of 4 experts"),
        ({"final_logit_softcapping": -3.0}, "logit_softcap = -3.0"),
        ({"query_pre_attn_scalar": "x"}, "config.json: unreadable"),
        ({"partial_rotary_factor": 1.5}, "rotates 96 elements of heads of 64"),
        ({"partial_rotary_factor": 0.33}, "rotates 21 elements of a head, an odd number"),
        ({"rope_theta": 0}, "rope_theta = 0.0"),
        ({"rope_theta": 1.0, "rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_theta = 1.0, too small"),
        (
            {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
            "1 factors for 32 frequencies",
        ),
        (
            {"rope_scaling": {"rope_type": "longrope", "short_factor": [0.0] * 32, "long_factor": [1.0] * 32}},
            "a rope scaling short_factor or long_factor = 0.0",
        ),
    ],
)
def test_figures_that_cannot_be_followed_are_refused(figures: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        config_of(**figures)


@pytest.mark.parametrize(
    ("family", "stated", "message"),
    [
        ("qwen3", {"model_type": "llama"}, r"layers\.0\.self_attn\.q_norm\.weight: llama has no such norm"),
        ("llama", {"model_type": "qwen2"}, r"q_proj\.bias is missing"),
        ("llama", {"model_type": "qwen3"}, r"layers\.0\.self_attn\.q_norm\.weight is missing"),
        ("llama", {"model_type": "mixtral"}, "does not say how many experts"),
        ("llama", {"num_experts": 4, "num_experts_per_tok": 2}, "experts in a model of the llama family"),
        ("llama", {"tie_word_embeddings": False}, r"lm_head\.weight is missing"),
        ("llama", {"hidden_act": "gelu"}, r"hidden_act 'gelu' is not supported \(silu, .* are\)"),
        ("llama", {"partial_rotary_factor": 0.5}, "of 16 in heads of 32 is not supported in the llama family"),
        ("llama", {"model_type": "mamba"}, "no model family 'mamba' .there is: gemma2, "),
    ],
)
def test_a_file_that_is_not_of_the_family_it_names_is_refused(
    tmp_path: Path, family: str, stated: dict[str, Any], message: str
) -> None:
    make_family(family, tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw | stated))
    checkpoint = load_checkpoint(str(tmp_path))
    with pytest.raises(ModelLoadError, match=message):
        build_model(checkpoint.config, checkpoint.weights, ReferenceOperations(torch.device("cpu")), 64)
