"""Results of all ranks brought together on rank 0."""

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from meshwright.basics.figures import Mode
from meshwright.files.plan import Plan
from meshwright.files.run import MeasuredUnits, UnitTime
from meshwright.trainer.clock import UnitMeter
from meshwright.trainer.parallel.mesh import Mesh

Sums = Mapping[str, tuple[int, int, int, int, int]]
"""A unit's forward ns, forwards, backward ns, backwards and recompute ns on one rank."""


def to_first_rank(value: Any, mesh: Mesh) -> list[Any] | None:
    """Every rank's value in rank order, on rank 0; None elsewhere. Collective."""
    if mesh.world.size == 1:
        return [value]
    parts: list[Any] | None = [None] * mesh.world.size if mesh.rank == 0 else None
    dist.gather_object(value, parts, dst=0)
    return parts


def unit_sums(meter: UnitMeter) -> Sums:
    """What one rank measured."""
    return {
        unit: (
            meter.forward_ns.get(unit, 0), meter.forwards.get(unit, 0), meter.backward_ns.get(unit, 0),
            meter.backwards.get(unit, 0), meter.recompute_ns.get(unit, 0),
        )
        for unit in meter.forwards
    }  # fmt: skip


def measured_units(plan: Plan, ranks: list[tuple[Sums, float, int]], mode: Mode) -> MeasuredUnits:
    """Mean device seconds of each unit over all ranks that ran it; `ranks` holds (sums, optimizer seconds a step,
    parameters that the optimizer updates)."""
    totals: dict[str, list[int]] = {}
    for sums, _, _ in ranks:
        for unit, values in sums.items():
            held = totals.setdefault(unit, [0, 0, 0, 0, 0])
            totals[unit] = [a + b for a, b in zip(held, values, strict=True)]
    units = {
        unit: UnitTime(f_ns * 1e-9 / max(1, f), b_ns * 1e-9 / max(1, b), f, again_ns * 1e-9 / max(1, b))
        for unit, (f_ns, f, b_ns, b, again_ns) in totals.items()
    }
    return MeasuredUnits(
        units=units, micro_batch=plan.batch.micro_batch, seq_len=plan.batch.seq_len, tp=plan.layout.tp,
        recompute=plan.layout.recompute, mode=mode, optimizer_s=sum(seconds for _, seconds, _ in ranks) / len(ranks),
        optimizer_parameters=sum(count for _, _, count in ranks) / len(ranks),
    )  # fmt: skip
