"""GGUF files that lie about themselves: whatever the bytes say, they are read or refused."""

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from model_files import random_weights, write_gguf

from engine.errors import ModelLoadError
from engine.loader.checkpoint import load_checkpoint
from engine.loader.gguf_file import GGUFFile


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "model.gguf", random_weights())


def read_all(path: Path) -> None:
    checkpoint = load_checkpoint(str(path))
    config = checkpoint.config
    shape = (config.num_heads * config.head_dim, config.hidden_size)
    checkpoint.weights.matrix("model.layers.0.self_attn.q_proj.weight", shape)
    checkpoint.weights.get("model.norm.weight", (config.hidden_size,))
    checkpoint.tokenizer.decode(checkpoint.tokenizer.encode("ab"))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    at=st.integers(0, 9000),
    bytes_there=st.binary(min_size=1, max_size=8) | st.sampled_from([b"\xff" * 8, b"\0" * 8]),
    end=st.none() | st.integers(0, 9000),
)
@example(at=8, bytes_there=b"\xff" * 8, end=None)  # the number of tensors
@example(at=16, bytes_there=b"\xff" * 8, end=None)  # the number of keys
def test_a_damaged_header_is_refused_or_does_no_harm(
    tmp_path: Path, whole: Path, at: int, bytes_there: bytes, end: int | None
) -> None:
    path, content = tmp_path / "model.gguf", whole.read_bytes()
    path.write_bytes((content[:at] + bytes_there + content[at + len(bytes_there) :])[:end])
    with contextlib.suppress(ModelLoadError):
        read_all(path)


def tensor_header(name: bytes, offset: int, size: int = 8) -> bytes:
    return struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, size, 0, offset)


def write_tensors(path: Path, *headers: bytes) -> Path:
    start = struct.pack("<4sIQQ", b"GGUF", 3, len(headers), 0) + b"".join(headers)
    path.write_bytes(start + bytes(-len(start) % 32) + bytes(64))
    return path


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ((tensor_header(b"a", 0), tensor_header(b"b", 28)), "tensors a and b overlap"),
        ((tensor_header(b"a", 0), tensor_header(b"a", 32)), "tensor a is there twice"),
        ((tensor_header(b"a", 64),), "tensor a ends beyond the file's"),
        ((tensor_header(b"a", 2**64 - 64),), "tensor a ends beyond the file's"),
        ((tensor_header(b"a", 0, 2**62),), "tensor a ends beyond the file's"),
    ],
)
def test_tensors_that_cannot_be_where_they_say_are_refused(
    tmp_path: Path, headers: tuple[bytes, ...], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        GGUFFile(write_tensors(tmp_path / "model.gguf", *headers))


def test_neighbours_are_fine(tmp_path: Path) -> None:
    path = write_tensors(tmp_path / "model.gguf", tensor_header(b"a", 32), tensor_header(b"b", 0))
    assert set(GGUFFile(path).tensors) == {"a", "b"}


def test_a_list_of_absurd_length_takes_no_memory(tmp_path: Path) -> None:
    header = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 0, 5 << 20)
    (tmp_path / "model.gguf").write_bytes(header + bytes(5 << 20))
    with pytest.raises(ModelLoadError, match="an array of 5242880 values"):
        GGUFFile(tmp_path / "model.gguf")
