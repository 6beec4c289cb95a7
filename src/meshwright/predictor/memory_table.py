"""The figures of a layout's units that count parameters and bytes, without those that count seconds."""

from dataclasses import replace

import numpy as np

from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.layout.recomputed import recomputed_units
from meshwright.model.units import units_of
from meshwright.model.variants import alike
from meshwright.predictor.compute import Share, share_of
from meshwright.predictor.stacks import stack_of
from meshwright.predictor.table import KINDS, Figure, UnitTable, layers_of, memory_figures

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


def _table(setup: Setup, share: Share) -> UnitTable:
    arch, stack = setup.proposal.arch, stack_of(setup)
    units = units_of(arch)
    distinct, which = np.unique(np.array(alike(arch)), return_inverse=True)
    each = np.array([memory_figures(setup, units[unit], share, stack) for unit in distinct])
    figures = np.zeros((len(units), len(Figure)))
    figures[:, _FIRST : _FIRST + each.shape[1]] = each[which]
    kinds = np.array([KINDS.index(unit.kind) for unit in units])
    tied = float(figures[0, Figure.DENSE]) if arch.tied else 0.0
    return UnitTable(tuple(unit.name for unit in units), figures, tied, layers_of(figures, kinds), kinds)
