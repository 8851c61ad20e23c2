"""Which .safetensors files make up a model, and what is said of those that are missing, damaged or too many."""

import contextlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from engine.errors import ModelLoadError
from engine.loader.folder_weights import FolderWeights
from engine.loader.shards import Shards

A, B = torch.arange(6.0).view(2, 3), torch.ones(4, dtype=torch.bfloat16)
FIRST, SECOND, INDEX = "model-1-of-2.safetensors", "model-2-of-2.safetensors", "model.safetensors.index.json"


def write_index(folder: Path, weight_map: Any) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 32}, "weight_map": weight_map}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file({"a": A}, tmp_path / FIRST)
    save_file({"b": B}, tmp_path / SECOND)
    write_index(tmp_path, {"a": FIRST, "b": SECOND})
    return tmp_path


def test_tensors_come_from_the_files_that_the_index_names(folder: Path) -> None:
    save_file({"a": A + 1, "c": A}, folder / "other.safetensors")
    weights = FolderWeights(folder, None)
    assert torch.equal(weights.get("a", (2, 3)), A)
    assert torch.equal(weights.get("b", (4,)), B)
    assert weights.get("b", (4,)).dtype == torch.bfloat16
    assert "c" not in weights


def test_one_whole_file_needs_no_index(folder: Path) -> None:
    save_file({"a": A + 1}, folder / "model.safetensors")
    assert torch.equal(Shards(folder).tensor("a"), A + 1)


def test_without_an_index_all_files_count_but_none_twice(folder: Path) -> None:
    (folder / INDEX).unlink()
    assert torch.equal(Shards(folder).tensor("b"), B)
    save_file({"a": A}, folder / "consolidated.safetensors")
    with pytest.raises(ModelLoadError, match="tensor a is in another file, too"):
        Shards(folder)


def test_progress_is_told_tensor_by_tensor(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    weights = FolderWeights(folder, None, lambda done, total: told.append((done, total)))
    total = sum((folder / name).stat().st_size for name in (FIRST, SECOND))
    for name, shape in (("a", (2, 3)), ("a", (2, 3)), ("b", (4,))):
        weights.get(name, shape)
    assert told == [(24, total), (32, total)]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / SECOND).unlink(), "names the file 'model-2-of-2.safetensors', which is missing"),
        (lambda f: save_file({"c": B}, f / SECOND), "model-2-of-2.safetensors: tensor b is missing"),
        (lambda f: write_index(f, {"a": "../a.safetensors"}), r"names the file '\.\./a.safetensors'"),
        (lambda f: write_index(f, {"a": 5}), "no index of tensors"),
        (lambda f: (f / INDEX).write_text("{"), "no index of tensors"),
        (lambda f: (f / FIRST).write_bytes((f / FIRST).read_bytes()[:-4]), "model-1-of-2.safetensors: unreadable"),
        (lambda f: (f / FIRST).write_bytes(struct.pack("<Q", 1 << 60) + b"{}"), "unreadable"),
        (lambda f: save_file({"a": A.int()}, f / FIRST), "tensor a is torch.int32, which can't be read; use"),
        (lambda f: save_file({"a": A.to(torch.float8_e4m3fn)}, f / FIRST), "tensor a is torch.float8_e4m3fn"),
        (lambda f: save_file({"a": A / 0}, f / FIRST), "tensor a holds values that are not finite"),
        (lambda f: save_file({"a": A[:1].clone()}, f / FIRST), r"tensor a has shape \[1, 3\]"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(folder)
    with pytest.raises(ModelLoadError, match=message):
        FolderWeights(folder, None).get("a", (2, 3))


def entry(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "dtype": draw(st.sampled_from(["F32", "BF16", "F16", "I32", "F8_E4M3", "F4", "X", 7, None])),
        "shape": draw(st.lists(st.integers(-1, 8) | st.sampled_from([2**32, 2**63]), max_size=3)),
        "data_offsets": draw(st.lists(st.integers(-1, 40) | st.sampled_from([2**63, 2**64]), max_size=3)),
    }


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """Headers that say anything of 32 bytes of data."""
    described = {name: entry(draw) for name in draw(st.sets(st.sampled_from(["a", "b", "__metadata__"])))}
    text = json.dumps(described).encode()
    return struct.pack("<Q", draw(st.sampled_from([len(text), len(text) - 1, 0, 2**63]))) + text + bytes(32)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=headers() | st.binary(max_size=64))
def test_whatever_a_file_says_it_is_read_or_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(data)
    for name, shape in (("a", (2, 3)), ("b", (4,))):
        with contextlib.suppress(ModelLoadError):
            assert FolderWeights(tmp_path, None).get(name, shape).shape == shape
