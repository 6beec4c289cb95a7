"""The peak that is predicted is the peak of the tensors that our trainer holds, counted one by one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshwright.basics.figures import Constant
from meshwright.files.run import RunFolder
from meshwright.files.run_io import read_memory
from meshwright.model.architecture import Architecture
from meshwright.predictor.memory import rank_memory
from meshwright.trainer.launch import train
from meshwright.trainer.options import Phase, TrainOptions

from .plans import cut, plan

pytest.importorskip("torch", reason="training needs meshwright[train]")

MODEL = Architecture("small", "llama", 4, 256, 8, 4, 32, 704, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "layout",
    [{}, {"recompute": "full"}, {"stages": cut(MODEL, 5, 5), "pp": 2}],
    ids=["none", "full", "two stages"],
)
def test_predicted_peaks_are_the_tracked_ones(tmp_path: Path, precision: str, layout: dict[str, Any]) -> None:
    given = plan(
        arch=MODEL, micro_batch=2, global_batch=8, seq_len=256, training={"precision": precision}, **layout
    )  # fmt: skip
    proposal = given.setup.proposal
    device = replace(proposal.cluster.device, peak_flops={precision: Constant(1e10, "guessed")})
    proposal = replace(proposal, cluster=replace(proposal.cluster, device=device))
    given = replace(given, setup=replace(given.setup, proposal=proposal))
    train(given, TrainOptions(run=tmp_path / "run", phases=(Phase("measured", 3),)), lambda line: None)
    predicted = rank_memory(given.setup, given.layout, given.batch)
    for held in read_memory(RunFolder(tmp_path / "run").memory):
        assert predicted[held.rank].total == pytest.approx(held.peak_tensors, rel=0.03)
