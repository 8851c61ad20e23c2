"""What a model's header says of an engine's options, before anything is loaded."""

from pathlib import Path

import pytest

from engine.engine import Engine
from engine.errors import ModelLoadError
from engine.fit import check_fit, count_blocks
from engine.types import EngineOptions


def test_hardly_any_blocks_are_refused() -> None:
    options = EngineOptions(model="", kv_cache_mb=3)
    assert count_blocks(options, 3 << 19) == 2
    with pytest.raises(ModelLoadError, match=r"kv_cache_mb = 3 holds 1 blocks of 16 tokens; a block takes 2.0 MiB"):
        count_blocks(options, 2 << 20)


def test_the_cut_is_the_one_that_a_start_makes(smollm2_path: Path) -> None:
    options = EngineOptions(model=str(smollm2_path), kv_cache_mb=24, max_model_len=9000)
    longer, smaller = check_fit(options)
    assert longer == "max_model_len = 9000 is cut to the model's own context, 8192 tokens"
    info = Engine(options).info
    num_tokens = info.context_length * (2 if info.dtype == "float32" else 1)
    assert smaller.startswith(f"kv_cache_mb = 24 holds {num_tokens} tokens")


@pytest.mark.parametrize("option", [{"max_model_len": 1}, {"kv_cache_mb": 0}])
def test_an_option_that_makes_no_sense_is_refused(smollm2_path: Path, option: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        check_fit(EngineOptions(model=str(smollm2_path), **option))


def test_what_fits_needs_no_words(smollm2_path: Path) -> None:
    assert check_fit(EngineOptions(model=str(smollm2_path), kv_cache_mb=24, max_model_len=1000)) == []


def test_a_family_that_is_not_here_is_refused(smollm2_path: Path, tmp_path: Path) -> None:
    whole = smollm2_path.read_bytes()
    header, tensors = whole[: 4 << 20], whole[4 << 20 :]
    other = tmp_path / "mamba.gguf"
    other.write_bytes(header.replace(b"llama.", b"mamba.").replace(b"llama", b"mamba", 1) + tensors)
    with pytest.raises(ModelLoadError, match="no model family 'mamba'"):
        check_fit(EngineOptions(model=str(other)))
