"""What people install: the wheel, unpacked where no checkout is in sight, has all its data and serves."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.faults.misbehaving import MisbehavingUpstream
from tests.support.in_process import CONFIG, chat
from tests.support.server import Gateway

PACKAGES = ("gateway", "routing", "semcache", "engine", "kernels", "migrations")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
MADE = shutil.ignore_patterns("__pycache__", "*.so", "build")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the packages: a build leaves things behind."""
    folder = tmp_path_factory.mktemp("source")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=MADE)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def installed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    built = subprocess.run([sys.executable, "-c", BUILD, wheels], cwd=source, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def files_of(folder: Path) -> set[str]:
    found = (path for package in PACKAGES for path in (folder / package).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)) for path in found if "__pycache__" not in path.parts}


def test_nothing_is_left_out(source: Path, installed: Path) -> None:
    assert files_of(installed) == files_of(source)


def test_it_serves(installed: Path, upstream: MisbehavingUpstream, tmp_path: Path) -> None:
    alone = {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}  # the folder that the tests run in is not looked at
    asked = [sys.executable, "-c", "import gateway; print(gateway.__file__)"]
    where = subprocess.run(asked, env=os.environ | alone, capture_output=True, text=True, check=True).stdout
    assert Path(where.strip()).is_relative_to(installed)
    with Gateway.over(CONFIG.format(upstream=upstream.base_url), tmp_path, **alone) as gateway:
        key = gateway.key("acme")
        status, _, body = gateway.post("/v1/chat/completions", chat(stream=True), key)
        assert (status, body.rstrip().endswith(b"data: [DONE]")) == (200, True)
        assert gateway.get("/dashboard")[0] == 200
        assert "acme" in gateway.tollhouse("costs")
