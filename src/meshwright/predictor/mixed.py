"""Times on clusters of several kinds of device: each stage runs at the pace of the devices that its pipeline rank has.

A pipeline rank is a block of devices that run in step, so the slowest of them counts (`cluster/mixed.py`). Links are
those that any group can count on.
"""

from dataclasses import replace

import numpy as np

from meshwright.cluster.device import Device
from meshwright.cluster.mixed import device_of
from meshwright.files.run import MeasuredUnits
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.predictor.table import Figure, StageTable, UnitTable, layout_table, stage_table


def setup_on(setup: Setup, device: Device) -> Setup:
    """The job with every device of one kind."""
    cluster = replace(setup.proposal.cluster, device=device)
    return replace(setup, proposal=replace(setup.proposal, cluster=cluster))


def kinds_of(setup: Setup) -> tuple[Device, ...]:
    """The kinds of device of a cluster."""
    cluster = setup.proposal.cluster
    return tuple({part.device.name: part.device for part in cluster.parts}.values()) or (cluster.device,)


def stages_of(
    setup: Setup, layout: Layout, batch: Batch, measured: MeasuredUnits | None = None, table: UnitTable | None = None
) -> StageTable:
    """The figures of every stage of a layout; `table` holds those of its units where devices are alike and it is at
    hand. Measured unit times are of the devices that were measured, whatever they are."""
    cluster = setup.proposal.cluster
    if not cluster.parts or measured is not None:
        found = table if table is not None else layout_table(setup, layout, batch, measured)
        return stage_table(found, layout.stages, layout.placement)
    by_rank = [device_of(cluster, layout.pp, rank) for rank in range(layout.pp)]
    each = {
        device.name: stage_table(
            layout_table(setup_on(setup, device), layout, batch), layout.stages, layout.placement
        )
        for device in by_rank
    }  # fmt: skip
    names = [by_rank[rank].name for rank in layout.placement]
    first = each[names[0]]
    figures = np.stack([each[name].figures[stage] for stage, name in enumerate(names)])
    return replace(first, figures=figures)


def fastest(tables: list[UnitTable]) -> UnitTable:
    """Of each unit the least seconds on any kind of device: what no stage is faster than."""
    figures = tables[0].figures.copy()
    figures[:, : Figure.DENSE] = np.min([table.figures[:, : Figure.DENSE] for table in tables], axis=0)
    return replace(tables[0], figures=figures)


def paces(setup: Setup, tables: dict[str, UnitTable], placement: tuple[int, ...], pp: int) -> tuple[float, ...]:
    """How fast each stage runs, 1 for the slowest kind of device; from the tables of a share by device's name."""
    seconds = {name: float(table.figures[:, [Figure.FORWARD, Figure.BACKWARD]].sum()) for name, table in tables.items()}
    slowest = max(seconds.values())
    by_rank = [slowest / seconds[device_of(setup.proposal.cluster, pp, rank).name] for rank in range(pp)]
    return tuple(round(by_rank[rank], 2) for rank in placement)
