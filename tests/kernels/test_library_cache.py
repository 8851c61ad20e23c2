"""Compiled libraries are kept, the newest few of them, whatever other processes do to the folder meanwhile."""

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernels.cpu.library_cache import kept_library
from tests.support.kernels import skipping_what_the_machine_lacks


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tollhouse"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A shared library's bytes."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "seven.c").write_text("int seven(void) { return 7; }")
    with skipping_what_the_machine_lacks():
        subprocess.run(
            ["g++", "-shared", "-fPIC", "-x", "c", folder / "seven.c", "-o", folder / "seven.so"], check=True
        )
    return (folder / "seven.so").read_bytes()


@pytest.fixture
def build(library: bytes) -> Callable[[Path], None]:
    def put(target: Path) -> None:
        scratch = target.with_suffix(f".{os.urandom(4).hex()}")
        scratch.write_bytes(library)
        scratch.replace(target)

    return put


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_there_is_not_built_again(folder: Path, build: Callable[[Path], None]) -> None:
    kept_library("avx2-1.so", build)
    assert kept_library("avx2-1.so", lambda target: pytest.fail("built again")).seven() == 7


def test_of_each_kind_the_last_used_stay(folder: Path, build: Callable[[Path], None]) -> None:
    kept_library("amx-0.so", build)
    for i in range(5):
        kept_library(f"avx2-{i}.so", build)
        os.utime(folder / f"avx2-{i}.so", (i, i))
    kept_library("avx2-0.so", build)
    kept_library("avx2-5.so", build)
    assert names(folder) == ["amx-0.so", *(f"avx2-{i}.so" for i in (0, 2, 3, 4, 5))]


def test_what_is_remembered_of_a_library_goes_with_it(folder: Path, build: Callable[[Path], None]) -> None:
    for i in (1, 10, 2, 3, 4):
        kept_library(f"avx2-{i}.so", build)
        (folder / f"avx2-{i}-abc.passed").touch()
        os.utime(folder / f"avx2-{i}.so", (i, i))
    kept_library("avx2-5.so", build)
    assert [name for name in names(folder) if name.endswith(".passed")] == [
        f"avx2-{i}-abc.passed" for i in (10, 2, 3, 4)
    ]


def test_one_that_is_removed_after_it_was_seen_is_built_again(
    folder: Path, build: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_library("avx2-1.so", build)
    touch = os.utime
    removed: list[Path] = []

    def remove_once(target: Path) -> None:
        touch(target)
        if not removed:
            removed.append(target)
            target.unlink()

    monkeypatch.setattr(os, "utime", remove_once)
    # Another name for the loader, which hands out what it has loaded without looking at the folder.
    (folder / "avx2-1.so").rename(folder / "avx2-2.so")
    assert kept_library("avx2-2.so", build).seven() == 7
    assert removed
    assert names(folder) == ["avx2-2.so"]


def test_a_damaged_library_is_an_error(folder: Path) -> None:
    folder.mkdir()
    (folder / "avx2-1.so").write_bytes(b"\x7fELF of nothing")
    with pytest.raises(OSError, match=r"avx2-1\.so"):
        kept_library("avx2-1.so", lambda target: None)


def test_a_folder_of_another_user_serves(
    folder: Path, build: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(1, "not yours")

    folder.mkdir()
    for i in range(7):
        build(folder / f"avx2-{i}.so")
    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    assert kept_library("avx2-0.so", build).seven() == 7
    assert len(names(folder)) == 7


def test_many_may_build_load_and_remove_at_once(folder: Path, build: Callable[[Path], None]) -> None:
    def load(i: int) -> bool:
        return all(kept_library(f"avx2-{(i + j) % 7}.so", build).seven() == 7 for j in range(30))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(load, range(6)))
    assert len(names(folder)) >= 5
