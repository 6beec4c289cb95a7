"""A run on documents of unequal length, from text to metrics, and on under another layout."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshwright.files.plan import Plan
from meshwright.files.run import RunFolder
from meshwright.files.run_io import read_metrics
from meshwright.files.setup import DataSource
from meshwright.trainer.data import open_tokens
from meshwright.trainer.launch import train
from meshwright.trainer.options import Phase, TrainOptions, read_options

from .plans import plan

pytest.importorskip("torch", reason="training needs meshwright[train]")


def quiet(_: str) -> None:
    pass


def on_text(made: Plan, path: Path) -> Plan:
    return replace(made, setup=replace(made.setup, data=DataSource(str(path), vocab=256 + 1, field="body", pack="pad")))


@pytest.mark.slow
def test_a_run_reads_documents_and_goes_on_under_another_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    lines = [json.dumps({"body": "ab" * int(size)}) + "\n" for size in rng.integers(1, 40, 60)]
    (tmp_path / "texts.jsonl").write_text("".join(lines))
    wide = replace(plan().setup.proposal.arch, vocab=300)
    one, two = (
        on_text(plan(arch=wide, micro_batch=2, global_batch=8, **layout), tmp_path / "texts.jsonl")
        for layout in ({}, {"dp": 2})
    )
    straight = TrainOptions(tmp_path / "a", (Phase("measured", 4),))
    broken = TrainOptions(tmp_path / "b", (Phase("measured", 2),), checkpoint_every=2)
    train(one, straight, quiet)
    train(two, broken, quiet)
    train(one, replace(broken, phases=straight.phases, resume=True), quiet)
    lines_of_a, lines_of_b = (read_metrics(RunFolder(tmp_path / name).metrics) for name in "ab")
    for ours, theirs in zip(lines_of_a, lines_of_b, strict=True):
        assert theirs.loss == pytest.approx(ours.loss, rel=1e-5)
        assert ours.data_wait_s is not None
        assert 0 <= ours.data_wait_s < 60
        assert ours.replica_tokens == (ours.tokens,)
        assert theirs.replica_tokens is not None
        assert sum(theirs.replica_tokens) == theirs.tokens == ours.tokens
        assert theirs.replica_squares is not None
        assert (sum(theirs.replica_squares),) == ours.replica_squares
    assert [len(step.replica_tokens or ()) for step in lines_of_b] == [2, 2, 1, 1]
    assert len({step.tokens for step in lines_of_a}) > 1  # the samples are ragged
    tokens = read_options(tmp_path / "a").tokens
    assert tokens is not None
    assert open_tokens(tokens).documents is not None
