"""Case A6, memory over node counts: the planner's part."""

from pathlib import Path

import pytest

from meshwright.basics.quantities import GIB

from .plans_of import plan, states, worst


def test_a6_memory_over_nodes_is_a_plus_b_over_n(tmp_path: Path) -> None:
    """ZeRO-1 on 8·n devices, micro-batch 6 of 2880: reported states 31.5, 29.3, 28.5, 28.1, 27.9 GiB.

    The slope of the reported row, 35.2 GiB, is 12 bytes a parameter of a model of 3.15 B; its intercept, 27.1 GiB, is
    more than the 6 bytes a parameter that ZeRO-1 leaves whole: it holds what is not said.
    """
    model = "layers = 32\nhidden = 2816\nheads = 22\nffn_hidden = 7232\nvocab = 32000"
    found = {}
    for nodes in (1, 2, 3, 4, 5):
        batch = "global = 2880\nseq_len = 1024\nmicro_batch = 6"
        found[nodes] = worst(plan(tmp_path, model, 8 * nodes, batch, f"dp = {8 * nodes}\ntp = 1\npp = 1\nzero = 1"))
    held = {nodes: states(rank) / GIB for nodes, rank in found.items()}
    b = (held[1] - held[2]) / (1 / 8 - 1 / 16)
    a = held[1] - b / 8
    for nodes in (3, 4, 5):
        assert held[nodes] == pytest.approx(a + b / (8 * nodes), abs=1e-3)
    assert b == pytest.approx(35.2, rel=0.02)
    reported = {1: 31.5, 2: 29.3, 3: 28.5, 4: 28.1, 5: 27.9}
    for nodes, row in reported.items():
        assert held[nodes] - held[1] == pytest.approx(row - reported[1], abs=0.1)
    assert len({rank.parts["activations"] for rank in found.values()}) == 1
