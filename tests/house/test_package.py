"""The wheel holds everything the package reads, and its metadata says what the project says."""

import email
import importlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import meshwright

REPOSITORY = Path(__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy of the sources, without the network."""
    work = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, work)
    shutil.copytree(REPOSITORY / "src", work / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    subprocess.run(
        [sys.executable, "-c", "from setuptools import build_meta; build_meta.build_wheel('dist')"],
        cwd=work, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (built,) = (work / "dist").glob("*.whl")
    return zipfile.ZipFile(built)


def _metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def test_every_file_of_the_package_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    package = REPOSITORY / "src" / "meshwright"
    ours = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "meshwright/py.typed" in ours
    assert ours <= set(wheel.namelist())


def test_metadata(wheel: zipfile.ZipFile) -> None:
    found = _metadata(wheel)
    assert found["Name"] == "meshwright"
    assert found["Version"] == PROJECT["version"] == meshwright.__version__
    assert found["License-Expression"] == "Apache-2.0"
    assert found["Requires-Python"] == ">=3.11"
    required = [text for text in found.get_all("Requires-Dist", []) if "extra ==" not in text]
    assert not any(text.startswith(("torch", "transformers")) for text in required), "torch belongs to [train]"


def test_the_command_exists() -> None:
    module, function = PROJECT["scripts"]["meshwright"].split(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_the_changelog_knows_this_version() -> None:
    assert f"## {meshwright.__version__}" in (REPOSITORY / "CHANGELOG.md").read_text()


def test_every_dependency_is_pinned_within_its_range() -> None:
    from packaging.requirements import Requirement

    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pins = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins.items()}
    extras = PROJECT["optional-dependencies"]
    for text in (*PROJECT["dependencies"], *extras["train"], *extras["dev"]):
        wanted = Requirement(text)
        assert pins[re.sub(r"[-_.]+", "-", wanted.name).lower()] in wanted.specifier, text
