"""Kernels are trusted only after their self-test; what can't run gives way to the next best, and torch says so once."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernels import dispatch
from kernels.batch import TokenBatch
from kernels.cpu import build
from kernels.cpu.build import LEVELS, KernelUnavailableError, load_library
from kernels.operations import HeadShape, ModelShape, PackedWeight
from kernels.reference import ReferenceOperations
from kernels.reference_sampling import ReferenceSampling
from kernels.self_test import SelfTestError, run_self_test
from tests.support.kernels import skipping_what_the_machine_lacks

CPU, SHAPE = torch.device("cpu"), ModelShape(HeadShape(9, 3, 64), 576, 1536, 30)
FLAGS = frozenset(LEVELS["amx"].flags)


@pytest.fixture(autouse=True)
def fresh_choice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TOLLHOUSE_KERNELS", raising=False)
    dispatch._say_once.cache_clear()
    yield
    dispatch._say_once.cache_clear()


def choose(shape: ModelShape = SHAPE) -> str:
    return dispatch.choose_operations(CPU, shape).name


def pretend(monkeypatch: pytest.MonkeyPatch, flags: frozenset[str]) -> None:
    monkeypatch.setattr(build, "cpu_flags", lambda: flags)


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.message) for record in caplog.records if record.name == "kernels.dispatch"]


def test_without_the_instructions_torch_runs_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend(monkeypatch, frozenset({"sse2"}))
    with caplog.at_level(logging.WARNING):
        assert [choose(), choose()] == ["reference", "reference"]
    ((severity, message),) = messages(caplog)
    assert severity == "WARNING"
    assert message.startswith("running in plain torch, several times slower. amx: this processor lacks amx_bf16, ")
    assert message.endswith("avx2: this processor lacks avx2, f16c, fma")


def test_the_best_that_the_processor_has(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """AVX-512 without VNNI or BF16 is run as AVX2."""
    if not set(LEVELS["avx2"].flags) <= build.cpu_flags():
        pytest.skip("this processor lacks AVX2")
    pretend(monkeypatch, FLAGS - {"avx512_bf16", "avx512_vnni"})
    with caplog.at_level(logging.INFO):
        assert choose() == "avx2"
    assert messages(caplog) == [
        ("INFO", "running on avx2. amx, avx512: this processor lacks avx512_bf16, avx512_vnni"),
    ]


def test_a_failed_self_test_gives_way_to_the_next(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatch, "CpuOperations", lambda level, bf16_copy: Named(level.name))

    def test(operations: Named, heads: HeadShape) -> None:
        if operations.name != "avx2":
            raise SelfTestError("linear deviates")

    monkeypatch.setattr(dispatch, "run_self_test", test)
    with caplog.at_level(logging.INFO):
        assert choose() == "avx2"
    assert messages(caplog) == [("INFO", "running on avx2. amx, avx512: linear deviates")]


class Named(ReferenceOperations):
    library = Path("nowhere")

    def __init__(self, name: str) -> None:
        super().__init__(CPU)
        self.name = name


def test_without_a_compiler_the_message_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pretend(monkeypatch, FLAGS)
    monkeypatch.setenv("PATH", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert choose() == "reference"
    assert messages(caplog) == [
        (
            "WARNING",
            "running in plain torch, several times slower. "
            "amx, avx512, avx2: no C++ compiler was found (Debian: apt install g++)",
        )
    ]


@pytest.mark.parametrize("said", ["no such option", "a.h:1: warning\n" * 300 + "a.cpp:2: error: no such option"])
def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str) -> None:
    """Its error, however much it warns of before."""
    pretend(monkeypatch, FLAGS)
    (tmp_path / "said").write_text(said)
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\ncat {tmp_path}/said >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(KernelUnavailableError, match="no such option"):
        load_library(LEVELS["avx2"])
    assert list((tmp_path / "cache" / "tollhouse").iterdir()) == []


def test_a_compiler_that_can_not_be_run_is_an_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, FLAGS)
    compiler = tmp_path / "compiler"
    compiler.write_bytes(b"\x7fELF of another machine")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(KernelUnavailableError, match=r"can't be built or loaded .*compiler"):
        load_library(LEVELS["avx2"])


def test_without_a_home_there_is_no_place_for_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    pretend(monkeypatch, FLAGS)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(KernelUnavailableError, match="home directory"):
        load_library(LEVELS["avx2"])


def test_all_words_of_the_compilers_name_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CXX="ccache g++" is a launcher and a compiler."""
    pretend(monkeypatch, FLAGS)
    launcher = tmp_path / "launcher"
    launcher.write_text('#!/bin/sh\necho "launched: $1 $2" >&2\nexit 1\n')
    launcher.chmod(0o755)
    monkeypatch.setenv("CXX", f"{launcher} some-compiler -m64")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(
        KernelUnavailableError, match=r"launcher some-compiler -m64 can't .*launched: some-compiler -m64"
    ):
        load_library(LEVELS["avx2"])


def test_the_environment_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLHOUSE_KERNELS", "reference")
    assert choose() == "reference"
    monkeypatch.setenv("TOLLHOUSE_KERNELS", "")  # as compose files pass what is not set
    choose()
    monkeypatch.setenv("TOLLHOUSE_KERNELS", "fast")
    with pytest.raises(ValueError, match="choose one of auto, reference, avx2, avx512, amx"):
        choose()
    monkeypatch.setenv("TOLLHOUSE_KERNELS", "avx512")
    pretend(monkeypatch, frozenset({"avx2"}))
    with pytest.raises(KernelUnavailableError, match="TOLLHOUSE_KERNELS=avx512: this processor lacks"):
        choose()


@pytest.mark.parametrize("name", LEVELS)
def test_each_instruction_set_that_is_here_can_be_asked_for(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with skipping_what_the_machine_lacks():
        load_library(LEVELS[name])
    monkeypatch.setenv("TOLLHOUSE_KERNELS", name)
    assert choose() == name


def test_what_one_model_records_another_does_not_meet() -> None:
    """Two engines of one process: the second samples in its own thread while the first runs for the first time."""
    recording, sampling = (dispatch.choose_operations(CPU, SHAPE) for _ in range(2))
    logits, sampled = torch.eye(2, 300), []

    def forward(x: torch.Tensor, rows: int) -> torch.Tensor:
        sampled.append(sampling.sampling.argmax(logits.flip(1)))
        return recording.rms_norm(x, torch.ones(64), 1e-5)

    recording.compile(forward, max_rows=4)(torch.ones(2, 64, dtype=recording.dtype), 0)
    assert sampled == [[299, 298]]


def test_shapes_the_kernels_do_not_know_run_in_torch() -> None:
    assert choose(ModelShape(HeadShape(4, 2, 33), 576, 1536, 30)) == "reference"
    assert choose(ModelShape(HeadShape(9, 3, 64), 100, 1536, 30)) == "reference"
    assert choose(ModelShape(HeadShape(9, 3, 64), 576, 1536, 30, expert_size=40)) == "reference"


class WrongProduct(ReferenceOperations):
    def linear(self, x: torch.Tensor, weight: PackedWeight, batch: TokenBatch) -> torch.Tensor:
        y = super().linear(x, weight, batch)
        y[-1, -1] += 0.1 * y.abs().max()  # one wrong value in the last row, as a wrong tail would give
        return y


class WrongToken(ReferenceSampling):
    def argmax(self, logits: torch.Tensor) -> list[int]:
        first, *others = super().argmax(logits)
        return [first + 1, *others]


class WrongSampling(ReferenceOperations):
    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.sampling = WrongToken()


class WrongForMany(ReferenceOperations):
    """As if the tiles that only many generated rows use were wrong."""

    def linear(self, x: torch.Tensor, weight: PackedWeight, batch: TokenBatch) -> torch.Tensor:
        return super().linear(x, weight, batch) * (1.0 if batch.num_generated < 8 else 1.1)


class NanAttention(ReferenceOperations):
    def paged_attention(self, *arguments: object) -> torch.Tensor:
        return super().paged_attention(*arguments) * float("nan")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (WrongProduct(CPU), "linear.* deviates"),
        (WrongForMany(CPU), "linear.* deviates"),
        (WrongSampling(CPU), "argmax deviates"),
        (NanAttention(CPU), "attention deviates by nan"),
    ],
)
def test_the_self_test_finds_a_wrong_kernel(wrong: ReferenceOperations, message: str) -> None:
    run_self_test(ReferenceOperations(CPU), SHAPE.heads)
    with pytest.raises(SelfTestError, match=message):
        run_self_test(wrong, SHAPE.heads)


def test_the_library_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "nothing.cpp"
    source.write_text('extern "C" int nothing() { return 7; }')
    try:
        assert load_library(LEVELS["avx2"], [source]).nothing() == 7
    except KernelUnavailableError:
        return  # the other tests here say what a machine without the means gets
    (library,) = (tmp_path / "tollhouse").iterdir()
    built = library.stat().st_ino
    load_library(LEVELS["avx2"], [source])
    assert library.stat().st_ino == built


def test_checkouts_of_one_source_share_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for checkout in ("here", "there"):
        folder = tmp_path / checkout
        folder.mkdir()
        (folder / "seven.h").write_text("static int seven() { return 7; }")
        (folder / "nothing.cpp").write_text('#include "seven.h"\nextern "C" int nothing() { return seven(); }')
        monkeypatch.setattr(build, "FOLDER", folder)
        try:
            assert load_library(LEVELS["avx2"]).nothing() == 7
        except KernelUnavailableError:
            return  # as above
    assert len(list((tmp_path / "tollhouse").iterdir())) == 1
