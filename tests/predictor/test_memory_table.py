"""Figures of memory alone are those of the full table."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from meshwright.files.plan import Plan
from meshwright.model.architecture import Architecture
from meshwright.predictor.memory_table import memory_table
from meshwright.predictor.table import Figure, layout_table

DENSE = Architecture("dense", "llama", 8, 512, 8, 4, 64, 1376, 4001, tied=True)
EXPERTS = Architecture("experts", "mixtral", 8, 512, 8, 4, 64, 1024, 4000, experts=8, active_experts=2)


@pytest.mark.parametrize("arch", [DENSE, EXPERTS])
@pytest.mark.parametrize(("recompute", "layers"), [("none", None), ("selective", None), ("full", None), ("full", 2)])
def test_same_bytes_as_with_times(
    make_plan: Callable[..., Plan], arch: Architecture, recompute: str, layers: int | None
) -> None:
    plan = make_plan(arch, 2, 4, 128, pp=2, tp=2, sp=True, recompute=recompute)
    layout = replace(plan.layout, recompute_layers=layers)
    full, bytes_only = layout_table(plan.setup, layout, plan.batch), memory_table(plan.setup, layout, plan.batch)
    assert bytes_only.names == full.names
    np.testing.assert_allclose(bytes_only.figures[:, Figure.DENSE :], full.figures[:, Figure.DENSE :])
    np.testing.assert_allclose(bytes_only.layers, full.layers)
    assert bytes_only.tied == full.tied
    assert not bytes_only.figures[:, : Figure.DENSE].any()
