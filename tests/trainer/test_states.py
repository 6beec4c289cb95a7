"""The states that the predictor counts are the states that the trainer holds, byte for byte."""

from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.basics.figures import Constant
from meshwright.files.run import RunFolder
from meshwright.files.run_io import read_memory
from meshwright.predictor.memory import rank_memory
from meshwright.trainer.launch import train
from meshwright.trainer.options import Phase, TrainOptions

from .plans import TINY, cut, plan

pytest.importorskip("torch", reason="training needs meshwright[train]")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_predicted_states_are_the_held_ones(tmp_path: Path, precision: str) -> None:
    arch = replace(TINY, vocab=300)  # a byte-level tokenizer needs 257
    given = plan(arch=arch, stages=cut(arch, 4, 6), tp=1, pp=2, micro_batch=2, training={"precision": precision})
    peak = {precision: Constant(1e10, "guessed")}
    cluster = given.setup.proposal.cluster
    cluster = replace(cluster, device=replace(cluster.device, peak_flops=peak))
    proposal = replace(given.setup.proposal, cluster=cluster)
    given = replace(given, setup=replace(given.setup, proposal=proposal))
    train(given, TrainOptions(run=tmp_path / "run", phases=(Phase("measured", 3),)), lambda line: None)
    predicted = rank_memory(given.setup, given.layout, given.batch)
    for held in read_memory(RunFolder(tmp_path / "run").memory):
        parts = predicted[held.rank].parts
        assert (held.weights, held.gradients) == (parts["weights"], parts["gradients"])
        # AdamW holds two moments a parameter, and a step count (4 B) for each of the rank's tensors.
        assert 0 <= held.optimizer - parts["optimizer"] <= 4 * 9 * 4
        # Activations and loss: within a third at this toy size, where single tensors weigh as much as a layer.
        assert held.peak_tensors == pytest.approx(predicted[held.rank].total, rel=0.34)
