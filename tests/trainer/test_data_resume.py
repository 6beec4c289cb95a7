"""A run that goes on reads on, or is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.files.setup import DataSource
from meshwright.trainer.data_prepare import prepare
from meshwright.trainer.data_resume import changed_data, keep_header

from .plans import plan

pytest.importorskip("tokenizers")


def silent(line: str) -> None:
    assert line


def test_the_same_tokens_go_on_and_others_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path / "cache"))
    run, text = tmp_path / "run", tmp_path / "a.txt"
    run.mkdir()
    text.write_text("the same words again and again\n" * 30)
    first = prepare(DataSource(str(text)), 300, silent)
    assert changed_data(plan(), plan(dp=2), run, first) == []  # an older run, that kept nothing
    keep_header(first, run)
    text.write_text("the same words again and again\n" * 30)  # written anew, with the same content
    again = prepare(DataSource(str(text)), 300, silent)
    assert again != first
    assert changed_data(plan(), plan(dp=2), run, again) == []
    text.write_text("the same words again and again\n" * 29 + "and something else\n")
    other = prepare(DataSource(str(text)), 300, silent)
    (said,) = changed_data(plan(), plan(dp=2), run, other)
    assert str(said).startswith(f"data = {text}: is another text than the run's, or has other tokens")


def test_another_way_of_cutting_is_refused() -> None:
    ours = plan()
    padded = replace(ours, setup=replace(ours.setup, data=DataSource(pack="pad", balance=False)))
    (said,) = changed_data(ours, padded, Path("runs/a"), None)
    assert str(said) == (
        "data.pack = pad: would repeat or skip text: the run was trained with another (stream in runs/a/plan.toml)"
    )
