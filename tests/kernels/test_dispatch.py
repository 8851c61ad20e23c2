"""Kernels are trusted only after their self-test; without a compiler or the instructions torch runs, and says so."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernels import dispatch
from kernels.cpu import build
from kernels.cpu.build import KernelUnavailableError, load_library
from kernels.operations import HeadShape, PackedWeight
from kernels.reference import ReferenceOperations
from kernels.self_test import SelfTestError, run_self_test

CPU, HEADS = torch.device("cpu"), HeadShape(9, 3, 64)


@pytest.fixture(autouse=True)
def fresh_choice() -> Iterator[None]:
    dispatch._avx512.cache_clear()
    dispatch._say_once.cache_clear()
    yield
    dispatch._avx512.cache_clear()


def choose(heads: HeadShape = HEADS) -> str:
    return dispatch.choose_operations(CPU, heads, 576, 1536).name


def without_avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_cpu_flags", lambda: frozenset({"sse2", "avx2"}))


def test_without_the_instructions_torch_runs_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_avx512(monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert [choose(), choose()] == ["reference", "reference"]
    assert [record.message for record in caplog.records if record.name == "kernels.dispatch"] == [
        "running in plain torch, several times slower: this processor lacks avx512_bf16, avx512bw, avx512dq, avx512f, "
        "avx512vl"
    ]


def test_without_a_compiler_the_message_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "_cpu_flags", lambda: build.REQUIRED_FLAGS)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KernelUnavailableError, match=r"apt install g\+\+"):
        load_library()
    assert choose() == "reference"


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "_cpu_flags", lambda: build.REQUIRED_FLAGS)
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho 'no such option' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(KernelUnavailableError, match="no such option"):
        load_library()
    assert list((tmp_path / "cache" / "tollhouse").iterdir()) == []


def test_all_words_of_the_compilers_name_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CXX="ccache g++" is a launcher and a compiler."""
    monkeypatch.setattr(build, "_cpu_flags", lambda: build.REQUIRED_FLAGS)
    launcher = tmp_path / "launcher"
    launcher.write_text('#!/bin/sh\necho "launched: $1 $2" >&2\nexit 1\n')
    launcher.chmod(0o755)
    monkeypatch.setenv("CXX", f"{launcher} some-compiler -m64")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(
        KernelUnavailableError, match=r"launcher some-compiler -m64 can't .*launched: some-compiler -m64"
    ):
        load_library()


def test_the_environment_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLHOUSE_KERNELS", "reference")
    assert choose() == "reference"
    monkeypatch.setenv("TOLLHOUSE_KERNELS", "fast")
    with pytest.raises(ValueError, match="choose one of auto, avx512, reference"):
        choose()
    monkeypatch.setenv("TOLLHOUSE_KERNELS", "avx512")
    without_avx512(monkeypatch)
    with pytest.raises(KernelUnavailableError, match="TOLLHOUSE_KERNELS=avx512: this processor lacks"):
        choose()


def test_shapes_the_kernels_do_not_know_run_in_torch() -> None:
    assert choose(HeadShape(4, 2, 80)) == "reference"


class WrongProduct(ReferenceOperations):
    def linear(self, x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
        y = super().linear(x, weight)
        y[-1, -1] += 0.1 * y.abs().max()  # one wrong value in the last row, as a wrong tail would give
        return y


class NanAttention(ReferenceOperations):
    def paged_attention(self, *arguments: object) -> torch.Tensor:
        return super().paged_attention(*arguments) * float("nan")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"), [(WrongProduct(CPU), "linear deviates"), (NanAttention(CPU), "attention deviates by nan")]
)
def test_the_self_test_finds_a_wrong_kernel(
    monkeypatch: pytest.MonkeyPatch, wrong: ReferenceOperations, message: str
) -> None:
    run_self_test(ReferenceOperations(CPU), HEADS)
    with pytest.raises(SelfTestError, match=message):
        run_self_test(wrong, HEADS)
    wrong.name = "wrong"  # type: ignore[misc]
    monkeypatch.setattr(dispatch, "_avx512", lambda: wrong)
    assert choose() == "reference"


def test_the_library_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        load_library()
    except KernelUnavailableError:
        return  # the other tests here say what a machine without the means gets
    (library,) = (tmp_path / "tollhouse").iterdir()
    built = library.stat().st_mtime_ns
    load_library()
    assert library.stat().st_mtime_ns == built
