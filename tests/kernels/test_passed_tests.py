"""A self-test that was passed is not run again, until anything changes that its outcome depends on."""

import shutil
from pathlib import Path

import pytest
import torch

from kernels import dispatch, passed_tests
from kernels.cpu.build import LEVELS, KernelUnavailableError
from kernels.cpu.operations import CpuOperations
from kernels.operations import HeadShape, ModelShape, Operations
from kernels.passed_tests import PassedTest
from kernels.self_test import SelfTestError, run_self_test
from tests.support.kernels import skipping_what_the_machine_lacks

HEADS = HeadShape(9, 3, 64)
SHAPE = ModelShape(HEADS, 576, 1536, 30)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    library = tmp_path / "avx2-1.so"
    library.write_bytes(b"code")
    PassedTest.of(library, HEADS).remember()
    assert PassedTest.of(library, HEADS).is_remembered()
    return library


def test_not_of_a_library_that_has_changed(library: Path) -> None:
    library.write_bytes(b"c0de")
    assert not PassedTest.of(library, HEADS).is_remembered()


def test_not_of_another_model(library: Path) -> None:
    assert not PassedTest.of(library, HeadShape(8, 8, 64)).is_remembered()


def test_not_on_another_processor(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_tests, "cpu_flags", lambda: frozenset({"avx2", "fma"}))
    assert not PassedTest.of(library, HEADS).is_remembered()


def test_not_with_another_torch(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "3.0")
    assert not PassedTest.of(library, HEADS).is_remembered()


def test_not_with_other_python_sources(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(passed_tests._FOLDER, tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(passed_tests, "_FOLDER", tmp_path / "kernels")
    assert PassedTest.of(library, HEADS).is_remembered()
    with (tmp_path / "kernels" / "cpu" / "products.py").open("a") as source:
        source.write("\n")
    assert not PassedTest.of(library, HEADS).is_remembered()


def test_a_folder_of_another_user_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> None:
        raise PermissionError(1, "not yours")

    (tmp_path / "avx2-1.so").write_bytes(b"code")
    monkeypatch.setattr(Path, "touch", refuse)
    PassedTest.of(tmp_path / "avx2-1.so", HEADS).remember()
    assert not PassedTest.of(tmp_path / "avx2-1.so", HEADS).is_remembered()


@pytest.fixture(scope="module", params=LEVELS)
def kernels(request: pytest.FixtureRequest) -> CpuOperations:
    with skipping_what_the_machine_lacks():
        return CpuOperations(LEVELS[request.param])


def test_kernels_are_tested_once(kernels: CpuOperations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Path(shutil.copy(kernels.library, tmp_path))
    tested: list[str] = []

    def operations(level: object, bf16_copy: bool) -> CpuOperations:
        found = CpuOperations(LEVELS[kernels.name], bf16_copy=bf16_copy)
        found.library = library
        return found

    def test(operations: Operations, heads: HeadShape) -> None:
        tested.append(operations.name)
        if len(tested) == 1:
            raise SelfTestError("linear deviates")
        run_self_test(operations, heads)

    monkeypatch.setattr(dispatch, "CpuOperations", operations)
    monkeypatch.setattr(dispatch, "run_self_test", test)
    monkeypatch.setenv("TOLLHOUSE_KERNELS", kernels.name)
    with pytest.raises(KernelUnavailableError, match="linear deviates"):
        dispatch.choose_operations(torch.device("cpu"), SHAPE)
    for _ in range(2):  # what failed is not remembered, what passed is
        assert dispatch.choose_operations(torch.device("cpu"), SHAPE).name == kernels.name
    assert tested == [kernels.name] * 2
    library.unlink()
    dispatch.choose_operations(torch.device("cpu"), SHAPE)
    assert tested == [kernels.name] * 3
