"""Tables made many at a time are those made one by one."""

from itertools import product

import numpy as np
import pytest

from meshwright.cluster.catalogue import device, link
from meshwright.cluster.topology import Cluster
from meshwright.files.setup import Runner, Setup
from meshwright.layout.degrees import RECOMPUTE, Layout
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.model.catalogue import named
from meshwright.model.training import Training
from meshwright.predictor.compute import Share
from meshwright.predictor.share_tables import ShareTables
from meshwright.predictor.table import share_table


@pytest.mark.parametrize("runner", ["any", "torchtitan", "megatron", "deepspeed"])
@pytest.mark.parametrize("model", ["deepseek-v3", "mixtral-8x7b", "gpt-oss-20b", "llama-3.2-1b", "gpt-neox-20b"])
def test_equal_one_by_one(model: str, runner: Runner) -> None:
    h800 = device("H800-SXM")
    cluster = Cluster(h800, 64, 8, link("nvlink4-h800"), link("ib-ndr"), h800.memory_bytes)
    proposal = Proposal(named(model), cluster, Training(), 64, 4096, Wanted())
    setup = Setup("t", proposal, runnable_by=runner)
    tables = ShareTables(setup)
    for (tp, etp), ep, micro, cp, mode in product([(1, 1), (2, 2), (2, 1)], (1, 4), (1, 8), (1, 2), RECOMPUTE):
        share = Share(micro, 4096, tp, tp > 1, cp, ep, etp, mode)
        degrees = Layout(((),), (0,), dp=64 // tp // cp, tp=tp, cp=cp, ep=ep, etp=etp)
        many, one = tables(share, degrees), share_table(setup, share, degrees)
        assert many.names == one.names
        assert many.tied == one.tied
        np.testing.assert_array_equal(many.figures, one.figures)
        np.testing.assert_array_equal(many.layers, one.layers)
        np.testing.assert_array_equal(many.kinds, one.kinds)
