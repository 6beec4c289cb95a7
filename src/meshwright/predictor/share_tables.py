"""Many unit tables of one job: rows that shares have in common are made once.

A unit without experts does not know how experts are cut: shares that differ in ep or etp only have its row in common.
"""

import numpy as np

from meshwright.files.setup import Setup
from meshwright.model.units import Unit, units_of
from meshwright.model.variants import alike, variant_of
from meshwright.predictor.compute import Share, roofline_cost
from meshwright.predictor.groups import Degrees
from meshwright.predictor.kernels import speed_of
from meshwright.predictor.stacks import stack_of
from meshwright.predictor.table import KINDS, UnitTable, table_of_rows, unit_row

Row = tuple[list[float], float]


class ShareTables:
    """The tables of a job whose unit times come from the roofline: what `share_table` gives, sooner."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.stack = setup, stack_of(setup)
        proposal = setup.proposal
        units, first = units_of(proposal.arch), alike(proposal.arch)
        distinct, self.which = np.unique(np.array(first), return_inverse=True)
        self.units: tuple[Unit, ...] = tuple(units[index] for index in distinct)
        self.experts = [bool(variant_of(proposal.arch, unit).experts) for unit in self.units]
        self.names = tuple(unit.name for unit in units)
        self.kinds = np.array([KINDS.index(unit.kind) for unit in self.units])[self.which]
        self.speed = speed_of(proposal.cluster.device, proposal.training.precision, self.stack)
        self.rows: dict[tuple[object, ...], Row] = {}

    def __call__(self, share: Share, degrees: Degrees) -> UnitTable:
        """The figures of every unit under one share."""
        same = share.micro_batch, share.tp, share.sp, share.cp, share.recompute
        rows, tied = [], 0.0
        for number, unit in enumerate(self.units):
            spread = (share.ep, share.etp) if self.experts[number] else None
            key = number, *same, spread
            if key not in self.rows:
                self.rows[key] = self._row(unit, share, degrees)
            row, shared = self.rows[key]
            rows.append(row)
            tied += shared
        return table_of_rows(self.names, np.array(rows)[self.which], tied, self.kinds, self.stack)

    def _row(self, unit: Unit, share: Share, degrees: Degrees) -> Row:
        proposal = self.setup.proposal
        cost = roofline_cost(proposal.arch, proposal.training, unit, share, self.speed, self.stack.recomputes)
        return unit_row(self.setup, unit, share, cost, degrees, self.stack)
