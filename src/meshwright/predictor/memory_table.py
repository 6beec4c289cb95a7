"""The figures of a layout's units that count parameters and bytes, without those that count seconds."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.layout.recomputed import recomputed_units
from meshwright.model.units import units_of
from meshwright.model.variants import alike
from meshwright.predictor.compute import Share, share_of
from meshwright.predictor.stacks import Stack, stack_of
from meshwright.predictor.table import KINDS, Figure, Floats, UnitTable, layers_of, memory_figures

_FIRST = Figure.DENSE  # the figures from here on are those of `memory_figures`, in its order


def memory_table(setup: Setup, layout: Layout, batch: Batch) -> UnitTable:
    """As `layout_table`, with 0 for every second: for questions about memory alone."""
    share = share_of(layout, batch)
    table = _table(setup, share)
    if layout.recompute != "full" or layout.recompute_layers is None:
        return table
    plain = _table(setup, replace(share, recompute="none"))
    chosen = recomputed_units(layout)
    again = np.array([name in chosen for name in table.names])
    figures = np.where(again[:, None], table.figures, plain.figures)
    return replace(table, figures=figures, layers=layers_of(figures, table.kinds))


def memory_figures_of(
    setup: Setup, shares: Sequence[Share], stack: Stack
) -> tuple[Floats, Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Of every share and unit, [share, unit, `Figure`] with 0 for seconds; the tied parameters by share; of each unit
    the index of its kind in `KINDS` and the first unit that is like it."""
    arch = setup.proposal.arch
    units, first = units_of(arch), np.array(alike(arch))
    distinct, which = np.unique(first, return_inverse=True)
    each = np.array([[memory_figures(setup, units[unit], share, stack) for unit in distinct] for share in shares])
    figures = np.zeros((len(shares), len(units), len(Figure)))
    figures[:, :, _FIRST : _FIRST + each.shape[2]] = each[:, which]
    kinds = np.array([KINDS.index(unit.kind) for unit in units])
    tied = figures[:, 0, Figure.DENSE] if arch.tied else np.zeros(len(shares))
    return figures, tied, kinds, first


def _table(setup: Setup, share: Share) -> UnitTable:
    figures, tied, kinds, _ = memory_figures_of(setup, (share,), stack_of(setup))
    names = tuple(unit.name for unit in units_of(setup.proposal.arch))
    return UnitTable(names, figures[0], float(tied[0]), layers_of(figures[0], kinds), kinds)
