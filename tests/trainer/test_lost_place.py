"""A run whose folder went away or whose disk filled up says so, instead of a failure to start."""

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from meshwright.files.strict_json import dump
from meshwright.trainer.failure import Failures, failures_file
from meshwright.trainer.lost_place import lost_place

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    failures_file(tmp_path).parent.mkdir()
    return tmp_path


def test_what_the_agent_reported_comes_first(run: Path) -> None:
    dump(Failures(1, ()), failures_file(run))
    assert lost_place(run, 3) is None


def test_a_folder_that_was_removed(tmp_path: Path) -> None:
    assert str(lost_place(tmp_path / "gone", 3)).endswith(f"after step 3: its folder {tmp_path / 'gone'} was removed")


@pytest.mark.parametrize(("last", "when"), [(None, "before its first step"), (7, "after step 7")])
def test_a_disk_that_filled_up(run: Path, monkeypatch: pytest.MonkeyPatch, last: int | None, when: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100, 100, 0))
    assert f"failed {when}: the disk is full" in str(lost_place(run, last))


def test_without_a_known_reason(run: Path) -> None:
    assert "after step 7: its ranks could not say why" in str(lost_place(run, 7))
    assert lost_place(run, None) is None  # then the agent's own log tells why nothing started
