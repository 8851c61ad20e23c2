"""The configuration file: what is refused, and in which words."""

from pathlib import Path
from typing import Any

import pytest

from gateway.config import Config, ProviderConfig, load, parse
from gateway.config_check import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text.encode())
    return caught.value.faults


def test_the_shipped_file_is_good_and_names_every_key() -> None:
    path = ROOT / "config.toml"
    config = load(path)
    text = path.read_text()
    for section in ("server", "store", "limits", "embedding", "cache", "router"):
        for key in getattr(config, section).__struct_fields__:
            if key != "rules":
                assert f"{key} = " in text, f"[{section}] {key} is not in config.toml"
    for sections in (config.engine, config.provider, config.model):
        for key in sections[0].__struct_fields__:
            assert f"{key} = " in text, f"{key} is not in config.toml"


ENGINE = "[[engine]]\nname = 'e'\nmodel = 'm'\n"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"base_url": "https://api.openai.com/v1"}, "max_completion_tokens"),
        ({"base_url": "https://eu.api.openai.com/v1"}, "max_completion_tokens"),
        ({"base_url": "https://me.openai.azure.com/openai/v1"}, "max_completion_tokens"),
        ({"base_url": "http://proxy:80", "kind": "azure"}, "max_completion_tokens"),
        ({"base_url": "http://notopenai.com/v1"}, "max_tokens"),
        ({"base_url": "http://127.0.0.1:11434/v1"}, "max_tokens"),
        ({"base_url": "http://vllm/v1", "max_tokens_field": "max_completion_tokens"}, "max_completion_tokens"),
        ({"base_url": "https://api.openai.com/v1", "max_tokens_field": "max_tokens"}, "max_tokens"),
    ],
)
def test_a_limit_goes_by_the_name_that_its_provider_heeds(settings: dict[str, Any], field: str) -> None:
    assert ProviderConfig(name="p", **settings).limit_field == field


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("kv_cache_dtype = 'int4'", "Invalid enum value 'int4' (one of auto, int8, fp8); did you mean 'int8'?"),
        ("device = 'gpu'", "device"),
        ("swap_space_gb = inf", "swap_space_gb"),
        ("kv_cache_mb = 99999999", "kv_cache_mb"),
        ("num_threads = 5000", "num_threads"),
    ],
)
def test_an_engine_that_could_not_start_is_refused(line: str, message: str) -> None:
    (fault,) = faults(MODEL + ENGINE + line)
    assert fault.startswith("engine[0].")
    assert message in fault


MODEL = "[[provider]]\nname = 'p'\nbase_url = 'http://127.0.0.1:1/v1'\n[[model]]\nname = 'm'\nprovider = 'p'\n"


def test_one_model_is_a_config_and_none_is_not() -> None:
    """An editor that empties a file before it writes it must not empty the gateway."""
    assert parse(MODEL.encode()).server.port == 8400
    assert parse(b"\xef\xbb\xbf" + MODEL.encode()).model[0].name == "m"
    assert faults("") == ["model: there is no [[model]], and so nothing that a client could ask for"]


def test_unknown_keys_are_all_named_with_the_nearest_valid_one() -> None:
    assert faults("[cache]\nttl = 3\n[tier.small]\nmodel = ['a']\n[[model]]\nname = 'x'\nprovder = 'y'\n") == [
        "cache.ttl: unknown key; did you mean 'ttl_s'?",
        "tier.small.model: unknown key; did you mean 'models'?",
        "model[0].provder: unknown key; did you mean 'provider'?",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[cache]\nttl_s = 'a'", "cache.ttl_s: Expected `float`, got `str`"),
        ("[cache]\nttl_s = -1", "cache.ttl_s: Expected `float` > 0.0"),
        ("[cache]\nsimilarity_threshold = 1.5", "cache.similarity_threshold: Expected `float` <= 1.0"),
        ("[cache]\nsimilarity_threshold = 0.3", "cache.similarity_threshold: Expected `float` >= 0.5"),
        ("[server]\nmax_body_mb = inf", "server.max_body_mb: Expected `float` <= 1000000000.0"),
        ("[embedding]\nmax_wait_ms = inf", "embedding.max_wait_ms: Expected `float` <= 1000000000.0"),
        ("[server]\nport = 70000", "server.port: Expected `int` <= 65535"),
        ("cache = 3", "cache: Expected `object`, got `int`"),
        ("hash = 'mine'", "hash: unknown key"),
        ("[tier.a]\nmodels = ['x']\n[tier.small]\nmodels = []", "tier.small.models: Expected `array` of length >= 1"),
    ],
)
def test_wrong_values_are_named_by_their_path(text: str, fault: str) -> None:
    assert faults(text) == [fault]


def test_names_must_meet() -> None:
    text = """
    baseline_model = "gpt"
    [router]
    default_tier = "smal"
    [[engine]]
    name = "local"
    model = "x.gguf"
    [[model]]
    name = "a"
    engine = "locl"
    [[model]]
    name = "a"
    engine = "local"
    provider = "local"
    [tier.small]
    models = ["b"]
    """
    assert faults(text) == [
        "model: 'a' is defined more than once",
        "model[0] (a).engine: no engine named 'locl'; did you mean 'local'?",
        "model[1] (a): give exactly one of provider and engine, or deployments",
        "tier.small.models: no model named 'b'",
        "router.default_tier: no tier named 'smal'; did you mean 'small'?",
        "baseline_model: no model named 'gpt'",
    ]


def test_reserved_names_are_refused() -> None:
    text = """
    [[engine]]
    name = "embedder"
    model = "x"
    [[provider]]
    name = "p"
    base_url = "http://127.0.0.1:1"
    [[model]]
    name = "auto"
    provider = "p"
    """
    assert faults(text) == [
        "engine: 'embedder' is the name of the bundled embedder; choose another",
        "model: 'auto' is what clients say to leave the choice to the router; choose another name",
    ]


def test_a_tier_names_models_not_globs() -> None:
    text = "[[engine]]\nname = 'e'\nmodel = 'x'\n[[model]]\nname = 'a-*'\nengine = 'e'\n[tier.t]\nmodels = ['a-*']\n"
    assert faults(text) == ["tier.t.models: 'a-*' is a glob; name the models themselves"]


def test_what_is_not_toml_says_where(tmp_path: Path) -> None:
    assert "line 1" in faults("x =")[0] or "Invalid value" in faults("x =")[0]
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "absent.toml")


def test_the_hash_follows_the_bytes() -> None:
    first, second = parse(MODEL.encode()), parse(MODEL.encode() + b"# a comment\n")
    assert isinstance(first, Config)
    assert first.hash != second.hash
    assert first.hash == parse(MODEL.encode()).hash


def test_a_provider_is_usable_once_its_key_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    text = MODEL.replace("/v1'", "/v1'\napi_key_env = 'SOME_KEY'").encode()
    monkeypatch.delenv("SOME_KEY", raising=False)
    assert not parse(text).provider[0].usable
    monkeypatch.setenv("SOME_KEY", "sk-1")
    assert parse(text).provider[0].usable
    assert parse(text.replace(b"SOME_KEY", b"")).provider[0].usable


@pytest.mark.parametrize(
    "line",
    [
        "input_usd_per_mtok = inf",
        "input_usd_per_mtok = nan",
        "output_usd_per_mtok = -1",
        "[store]\nredis_url = 'foo'",
        "[store]\ndatabase_url = 'mysql://x'",
        "[[provider]]\nname = 'q'\nbase_url = 'http://x'\napi_key_env = 'sk-a-key-itself'",
        "kind = 'embedding'\n[tier.small]\nmodels = ['m']",
    ],
)
def test_what_could_not_work_is_refused_beforehand(line: str) -> None:
    assert "sk-a-key" not in faults(MODEL + line)[0]


def test_time_is_paid_for_where_it_is_measured_and_then_alone() -> None:
    text = """
    [[engine]]
    name = "local"
    model = "m"
    [[provider]]
    name = "far"
    base_url = "http://127.0.0.1:9/v1"
    [[model]]
    name = "both"
    engine = "local"
    usd_per_hour = 1
    input_usd_per_mtok = 1
    [[model]]
    name = "elsewhere"
    provider = "far"
    usd_per_hour = 1
    [[model]]
    name = "spread"
    usd_per_hour = 1
    deployments = [{ engine = "local" }, { provider = "far" }, { provider = "far", upstream_name = "x" }]
    [[model]]
    name = "good"
    input_usd_per_mtok = 1
    deployments = [{ engine = "local", usd_per_hour = 1 }, { provider = "far" }]
    """
    nowhere = "only the time of an [[engine]] is measured, so only that has a usd_per_hour"
    assert faults(text) == [
        "model[0] (both): give prices of tokens or usd_per_hour, not both",
        f"model[1] (elsewhere): {nowhere}",
        f"model[2] (spread).deployments[1]: {nowhere}",
        f"model[2] (spread).deployments[2]: {nowhere}",
    ]


def test_deployments_must_make_sense() -> None:
    text = """
    [[provider]]
    name = "one"
    base_url = "http://127.0.0.1:1/v1"
    [[provider]]
    name = "two"
    base_url = "http://127.0.0.1:1/v1"
    [[model]]
    name = "both"
    provider = "one"
    deployments = [{ provider = "two" }]
    [[model]]
    name = "wrong"
    deployments = [{ provider = "oen" }, { provider = "one", engine = "x" }, { weight = 2 }]
    [[model]]
    name = "twice"
    deployments = [{ provider = "one" }, { provider = "two" }, { provider = "one" }]
    [[model]]
    name = "prices"
    deployments = [
      { provider = "one", upstream_name = "a", input_usd_per_mtok = 1 },
      { provider = "one", upstream_name = "b", input_usd_per_mtok = 2 },
    ]
    [[model]]
    name = "glob/*"
    deployments = [{ provider = "one", input_usd_per_mtok = 1 }]
    """
    assert faults(text) == [
        "model[0] (both): provider, engine and upstream_name stand in each of its deployments",
        "model[1] (wrong).deployments[0].provider: no provider named 'oen'; did you mean 'one'?",
        "model[1] (wrong).deployments[1]: give exactly one of provider and engine",
        "model[1] (wrong).deployments[2]: give exactly one of provider and engine",
        "model[2] (twice).deployments[2]: the same as one before it; give one of them a larger weight",
        "model[3] (prices).deployments[0]: the deployments at 'one' have one price; use a provider for each",
        "model[3] (prices).deployments[1]: the deployments at 'one' have one price; use a provider for each",
        "model[4] (glob/*).deployments[0]: a glob's price is the model's; give the models their own names for prices"
        " of their own",
    ]
    assert faults('[[model]]\nname = "a"\ndeployments = [{ provider = "x", weight = 0 }]') == [
        "model[0].deployments[0].weight: Expected `float` > 0.0"
    ]
