"""All figures of all units in one array, and their sums by stage: what prediction, memory and planning share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from meshwright.files.run import MeasuredUnits
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout, Recompute
from meshwright.layout.recomputed import recomputed_units
from meshwright.model.activations import unit_activation_bytes
from meshwright.model.parameters import tensor_parameters
from meshwright.model.shapes import tensors_of
from meshwright.model.units import Unit, units_of
from meshwright.model.variants import Variant, variants_of
from meshwright.predictor.compute import Share, UnitCost, costs_by_unit, share_of
from meshwright.predictor.exchanges import UnitExchange, unit_exchange
from meshwright.predictor.groups import Degrees

Floats = NDArray[np.float64]


class Figure(IntEnum):
    """Columns: device seconds of one micro-batch on one rank, parameters and bytes on one rank."""

    FORWARD = 0
    BACKWARD = 1  # recompute included
    INPUT_BACKWARD = 2
    WEIGHT_BACKWARD = 3
    RECOMPUTE = 4
    HOST = 5
    TP_FORWARD = 6
    TP_BACKWARD = 7
    CP_FORWARD = 8
    CP_BACKWARD = 9
    EP_FORWARD = 10
    EP_BACKWARD = 11
    DENSE = 12  # parameters
    EXPERT = 13
    ACTIVATION = 14  # bytes saved for one micro-batch
    WORKING = 15  # bytes saved by the unit when nothing is recomputed: what recompute brings back for a while


@dataclass(frozen=True)
class UnitTable:
    """`figures[u, f]` for every unit in the order of the forward; `tied` parameters lie in both embed and head, and
    `layer_working[u]` is the working bytes of the unit and, where it begins a layer of two, of the other half."""

    names: tuple[str, ...]
    figures: Floats
    tied: float
    layer_working: Floats


def _parameters(setup: Setup, unit: Unit, share: Share) -> tuple[float, float, float]:
    """Dense, expert and tied parameters of a unit on one rank."""
    dense = expert = tied = 0
    for tensor in tensors_of(setup.proposal.arch, unit):
        count = tensor_parameters(tensor, share.tp, share.ep, share.etp)
        if tensor.copies > 1:
            expert += count
        else:
            dense += count
        tied += count if tensor.tied else 0
    return dense, expert, tied


def _row(setup: Setup, unit: Unit, share: Share, cost: UnitCost, exchange: UnitExchange) -> list[float]:
    arch, training = setup.proposal.arch, setup.proposal.training
    local = max(1, share.seq_len // share.cp)
    etp = share.etp if arch.experts else None
    dense, expert, _ = _parameters(setup, unit, share)

    def kept(mode: Recompute) -> int:
        return unit_activation_bytes(arch, unit, training, share.micro_batch, local, mode, share.tp, share.sp, etp)

    return [
        cost.forward_s, cost.backward_s, cost.input_backward_s, cost.weight_backward_s, cost.recompute_s, cost.host_s,
        exchange.tp_forward_s, exchange.tp_backward_s, exchange.cp_forward_s, exchange.cp_backward_s,
        exchange.ep_forward_s, exchange.ep_backward_s, dense, expert, kept(share.recompute), kept("none"),
    ]  # fmt: skip


def share_table(
    setup: Setup,
    share: Share,
    degrees: Degrees,
    measured: MeasuredUnits | None = None,
    units: Sequence[Unit] | None = None,
) -> UnitTable:
    """The figures of every unit when all layers are alike in recompute; `units` are the model's, where they are at
    hand.

    Measured unit times leave collectives out, so those are added to them as to the roofline.
    """
    proposal = setup.proposal
    units = units or units_of(proposal.arch)
    costs = costs_by_unit(setup, share, measured, units=units)
    known: dict[tuple[Variant, int], int] = {}
    rows: list[list[float]] = []
    which, tied = [], 0.0
    for unit, variant in zip(units, variants_of(proposal.arch), strict=True):
        cost = costs[unit.name]
        key = (variant, id(cost))  # units without a measured time share the cost of their variant
        if key not in known:
            exchange = unit_exchange(proposal.arch, proposal.training, proposal.cluster, unit, share, cost, degrees)
            known[key] = len(rows)
            rows.append(_row(setup, unit, share, cost, exchange))
            if unit.kind == "head":
                tied = _parameters(setup, unit, share)[2]
        which.append(known[key])
    figures = np.array(rows, np.float64)[which]
    return UnitTable(tuple(costs), figures, tied, _layer_working(tuple(costs), figures))


def _layer_working(names: Sequence[str], figures: Floats) -> Floats:
    working = figures[:, Figure.WORKING].copy()
    halves = [here.endswith(".attn") and after == here[:-5] + ".ffn" for here, after in pairwise(names)]
    working[:-1] += np.where(halves, figures[1:, Figure.WORKING], 0.0)
    return working


def layout_table(setup: Setup, layout: Layout, batch: Batch, measured: MeasuredUnits | None = None) -> UnitTable:
    """The figures of every unit under a complete layout, "full for the first k layers of a stage" included."""
    share = share_of(layout, batch)
    table = share_table(setup, share, layout, measured)
    if layout.recompute != "full" or layout.recompute_layers is None:
        return table
    plain = share_table(setup, replace(share, recompute="none"), layout, measured)
    chosen = recomputed_units(layout)
    again = np.array([name in chosen for name in table.names])
    figures = np.where(again[:, None], table.figures, plain.figures)
    return UnitTable(table.names, figures, table.tied, table.layer_working)  # which does not depend on recompute


def by_rank(values: Floats, placement: Sequence[int], pp: int) -> Floats:
    """Sums by pipeline rank of figures by stage."""
    totals: Floats = np.bincount(np.asarray(placement), weights=values, minlength=pp).astype(np.float64)
    return totals


@dataclass(frozen=True)
class StageTable:
    """`figures[s, f]`: the sums of a stage's units. `largest[s]` is the parameters of its largest unit, `working[s]`
    the bytes of its largest layer, `units[s]` how many units it has, `mid_layer[s]` that it begins inside a layer."""

    figures: Floats
    largest: Floats
    working: Floats
    units: NDArray[np.int64]
    mid_layer: NDArray[np.bool_]
    head_stage: int
    embed_stage: int

    def __getitem__(self, figure: Figure) -> Floats:
        return self.figures[:, figure]


def stage_table(table: UnitTable, stages: Sequence[Sequence[str]], placement: Sequence[int]) -> StageTable:
    """Sums by stage. Every stage must hold a unit. Parameters of a tied matrix count once where one rank holds both
    ends, as `placement` says."""
    order = tuple(chain.from_iterable(stages))
    sizes = np.array([len(stage) for stage in stages])
    starts = np.cumsum(sizes) - sizes
    ordered, pairs = table.figures, table.layer_working
    if order != table.names:
        position = {name: index for index, name in enumerate(table.names)}
        ordered = table.figures[[position[name] for name in order]]
        pairs = _layer_working(order, ordered)
    figures = np.add.reduceat(ordered, starts, axis=0)
    parameters = ordered[:, Figure.DENSE] + ordered[:, Figure.EXPERT]
    embed = next((s for s, stage in enumerate(stages) if "embed" in stage), 0)
    head = next((s for s, stage in enumerate(stages) if "head" in stage), len(stages) - 1)
    if placement[embed] == placement[head]:
        figures[head, Figure.DENSE] -= table.tied
    return StageTable(
        figures, np.maximum.reduceat(parameters, starts), np.maximum.reduceat(pairs, starts), sizes,
        np.array([stage[0].endswith(".ffn") for stage in stages]), head, embed,
    )  # fmt: skip
