"""What cannot start is refused in one line, before any process is made."""

from pathlib import Path

import pytest

from meshwright.basics.errors import InputError
from meshwright.trainer import parity as parity_module
from meshwright.trainer import preflight
from meshwright.trainer.parity import parity

from .plans import plan


def test_ranks_that_memory_cannot_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "available_memory", lambda: 5 * preflight.RANK_BYTES)
    preflight.check_memory(5)
    with pytest.raises(InputError, match=r"6 ranks need about .*at most 5 ranks now"):
        preflight.check_memory(6)


def test_a_system_that_does_not_say_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "available_memory", lambda: None)
    preflight.check_memory(10**6)


def test_parity_starts_nothing_that_does_not_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs meshwright[train]")
    monkeypatch.setattr(preflight, "available_memory", lambda: 2**20)
    monkeypatch.setattr(parity_module, "train_all", lambda *rest: pytest.fail("processes were started"))
    with pytest.raises(InputError, match="ranks need about"):
        parity([plan(dp=2)])
