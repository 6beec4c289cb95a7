"""All figures of all units in one array, and their sums by stage: what prediction, memory and planning share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import chain
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from meshwright.files.run import MeasuredUnits
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.layout.recomputed import recomputed_units
from meshwright.model.lora import adapter_parameters
from meshwright.model.parameters import tensor_parameters
from meshwright.model.shapes import tensors_of
from meshwright.model.units import Unit, UnitKind, units_of
from meshwright.predictor.compute import Share, UnitCost, costs_by_unit, share_of
from meshwright.predictor.exchanges import UnitExchange, unit_exchange
from meshwright.predictor.groups import Degrees
from meshwright.predictor.memory_units import cast_bytes, gradient_bytes_of, kept_bytes
from meshwright.predictor.stacks import Stack, stack_of

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
    WORKING = 15  # bytes saved by the unit when nothing is recomputed
    ADAPTER = 16  # trainable parameters beside the frozen ones (LoRA)
    GRADIENT = 17  # bytes of gradients of activations while the unit's backward runs
    CAST = 18  # bytes of matrices cast for a forward that recompute drops before the backward
    TENSOR = 19  # parameters of the largest tensor


class Largest(IntEnum):
    """Columns of what the largest one of a stage decides, counted by layer and not by half of one."""

    AGAIN = 0  # bytes that recompute brings back for the layer's backward beyond what was kept
    WHOLE = 1  # parameters of what is gathered together: a layer, the embedding or the head
    LAYER = 2  # the same of layers alone
    SHAPES = 3  # of layers alone, experts left out
    GRADIENT = 4  # the most of any unit: halves of a layer run one after the other
    TENSOR = 5  # the largest of any unit


KINDS: tuple[UnitKind, ...] = get_args(UnitKind)
_EMBED, _ATTENTION, _FEED_FORWARD, _HEAD = map(KINDS.index, ("embed", "attn", "ffn", "head"))


@dataclass(frozen=True)
class UnitTable:
    """`figures[u, f]` for every unit in the order of the forward; `tied` parameters lie in both embed and head, and
    `layers[u, l]` are the figures of the layer that begins at the unit (`Largest`). `kinds[u]` indexes `KINDS`."""

    names: tuple[str, ...]
    figures: Floats
    tied: float
    layers: Floats
    kinds: NDArray[np.int64]


def _parameters(setup: Setup, unit: Unit, share: Share) -> tuple[float, float, float, float]:
    """Dense, expert and tied parameters of a unit on one rank, and those of its largest tensor."""
    dense = expert = tied = largest = 0
    for tensor in tensors_of(setup.proposal.arch, unit):
        count = tensor_parameters(tensor, share.tp, share.ep, share.etp)
        if tensor.copies > 1:
            expert += count
        else:
            dense += count
        tied += count if tensor.tied else 0
        largest = max(largest, count // max(1, tensor.copies // share.ep))
    return dense, expert, tied, largest


def memory_figures(setup: Setup, unit: Unit, share: Share, stack: Stack) -> list[float]:
    """The figures of one unit that count parameters and bytes: `DENSE` and what follows."""
    arch, training = setup.proposal.arch, setup.proposal.training
    dense, expert, _, largest = _parameters(setup, unit, share)
    working = kept = kept_bytes(arch, training, unit, share, "none", stack)
    if share.recompute != "none":
        kept = kept_bytes(arch, training, unit, share, share.recompute, stack)
    adapter = 0.0
    if training.task == "lora":
        adapter = float(adapter_parameters(arch, unit, training, share.tp, share.ep, share.etp))
    gradient, cast = gradient_bytes_of(arch, training, unit, share, stack), 0.0
    if share.recompute == "full" and unit.kind not in ("embed", "head"):
        cast = cast_bytes(arch, training, unit, share, stack)
    return [dense, expert, kept, working, adapter, gradient, cast, largest]


def _row(setup: Setup, unit: Unit, share: Share, cost: UnitCost, exchange: UnitExchange, stack: Stack) -> list[float]:
    return [
        cost.forward_s, cost.backward_s, cost.input_backward_s, cost.weight_backward_s, cost.recompute_s, cost.host_s,
        exchange.tp_forward_s, exchange.tp_backward_s, exchange.cp_forward_s, exchange.cp_backward_s,
        exchange.ep_forward_s, exchange.ep_backward_s, *memory_figures(setup, unit, share, stack),
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
    known: dict[int, int] = {}
    kinds: list[int] = []
    rows: list[list[float]] = []
    which, tied, stack = [], 0.0, stack_of(setup)
    for unit in units:
        cost = costs[unit.name]
        key = id(cost)  # units without a measured time share the cost of their variant
        if key not in known:
            row, shared = unit_row(setup, unit, share, cost, degrees, stack)
            known[key] = len(rows)
            rows.append(row)
            tied += shared
            kinds.append(KINDS.index(unit.kind))
        which.append(known[key])
    return table_of_rows(tuple(costs), np.array(rows, np.float64)[which], tied, np.array(kinds)[which], stack)


def unit_row(
    setup: Setup, unit: Unit, share: Share, cost: UnitCost, degrees: Degrees, stack: Stack
) -> tuple[list[float], float]:
    """The figures of one unit, and of its parameters those that are tied to another unit's (counted at the head)."""
    proposal = setup.proposal
    exchange = unit_exchange(proposal.arch, proposal.training, proposal.cluster, unit, share, cost, degrees, stack)
    tied = _parameters(setup, unit, share)[2] if unit.kind == "head" else 0.0
    return _row(setup, unit, share, cost, exchange, stack), tied


def table_of_rows(
    names: tuple[str, ...], figures: Floats, tied: float, kinds: NDArray[np.int64], stack: Stack
) -> UnitTable:
    """The table of the rows of all units, [unit, `Figure`], in the order of the forward."""
    if stack.spread_vocabulary:
        _spread(figures, kinds)
    return UnitTable(names, figures, tied, layers_of(figures, kinds), kinds)


def layers_of(figures: Floats, kinds: NDArray[np.int64]) -> Floats:
    """The columns of `Largest`, [..., unit, column]: of the unit, with the other half of the layer that it begins."""
    columns = np.empty((*figures.shape[:-1], len(Largest)))
    columns[..., Largest.AGAIN] = figures[..., Figure.WORKING] - figures[..., Figure.ACTIVATION]
    columns[..., Largest.WHOLE] = (
        figures[..., Figure.DENSE] + figures[..., Figure.EXPERT] + figures[..., Figure.ADAPTER]
    )
    at_ends = (kinds == _EMBED) | (kinds == _HEAD)
    columns[..., Largest.LAYER] = np.where(at_ends, 0.0, columns[..., Largest.WHOLE])
    columns[..., Largest.SHAPES] = np.where(at_ends, 0.0, figures[..., Figure.DENSE])
    columns[..., Largest.GRADIENT :] = 0.0
    halves = (kinds[:-1] == _ATTENTION) & (kinds[1:] == _FEED_FORWARD)
    columns[..., :-1, :] += np.where(halves[:, None], columns[..., 1:, :], 0.0)
    columns[..., Largest.GRADIENT] = figures[..., Figure.GRADIENT]
    columns[..., Largest.TENSOR] = figures[..., Figure.TENSOR]
    return columns


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
    return UnitTable(table.names, figures, table.tied, layers_of(figures, table.kinds), table.kinds)


def _spread(figures: Floats, kinds: NDArray[np.int64]) -> None:
    """Share the seconds of embedding and head among all layers, in place, as schedulers do that divide them over the
    pipeline ranks."""
    at_ends = (kinds == _EMBED) | (kinds == _HEAD)
    seconds = figures[:, : Figure.DENSE]
    seconds[~at_ends] += seconds[at_ends].sum(axis=0) / max(1, int((~at_ends).sum()))
    seconds[at_ends] = 0.0


def by_rank(values: Floats, placement: Sequence[int], pp: int) -> Floats:
    """Sums by pipeline rank of figures by stage."""
    totals: Floats = np.bincount(np.asarray(placement), weights=values, minlength=pp).astype(np.float64)
    return totals


@dataclass(frozen=True)
class StageTable:
    """`figures[s, f]`: the sums of a stage's units. `largest[s, l]`: of its largest layer (`Largest`). `units[s]`: how
    many units it has, `mid_layer[s]` that it begins inside a layer."""

    figures: Floats
    largest: Floats
    units: NDArray[np.int64]
    mid_layer: NDArray[np.bool_]
    head_stage: int
    embed_stage: int
    kept: Floats  # [unit] activation bytes, in the order of the stages
    ends: Floats  # dense parameters of embedding and head
    kinds: NDArray[np.int64]  # [unit] index into `KINDS`

    def kept_by_kind(self) -> Floats:
        """Activation bytes of one micro-batch by stage and kind of unit, [stage, `KINDS`]."""
        totals = np.zeros((len(self.units), len(KINDS)))
        np.add.at(totals, (np.repeat(np.arange(len(self.units)), self.units), self.kinds), self.kept)
        return totals

    def __getitem__(self, figure: Figure) -> Floats:
        return self.figures[:, figure]


def stage_table(table: UnitTable, stages: Sequence[Sequence[str]], placement: Sequence[int]) -> StageTable:
    """Sums by stage. Every stage must hold a unit. Parameters of a tied matrix count once where one rank holds both
    ends, as `placement` says."""
    order = tuple(chain.from_iterable(stages))
    sizes = np.array([len(stage) for stage in stages])
    starts = np.cumsum(sizes) - sizes
    ordered, layers, kinds = table.figures, table.layers, table.kinds
    if order != table.names:
        position = {name: index for index, name in enumerate(table.names)}
        where = [position[name] for name in order]
        ordered, kinds = table.figures[where], table.kinds[where]
        layers = layers_of(ordered, kinds)
    figures = np.add.reduceat(ordered, starts, axis=0)
    mid_layer = np.array([stage[0].endswith(".ffn") for stage in stages])
    cut = starts[mid_layer & (starts > 0)]
    if len(cut):  # a layer whose other half lies in the next stage
        layers = layers.copy()
        layers[cut - 1, : Largest.GRADIENT] -= layers[cut, : Largest.GRADIENT]
    embed = next((s for s, stage in enumerate(stages) if "embed" in stage), 0)
    head = next((s for s, stage in enumerate(stages) if "head" in stage), len(stages) - 1)
    if placement[embed] == placement[head]:
        figures[head, Figure.DENSE] -= table.tied
    ends = np.zeros(len(stages))
    for stage, unit in ((embed, 0), (head, -1)):
        ends[stage] += table.figures[unit, Figure.DENSE]
    if placement[embed] == placement[head]:
        ends[head] -= table.tied
    return StageTable(
        figures, np.maximum.reduceat(layers, starts, axis=0), sizes,
        mid_layer, head, embed, ordered[:, Figure.ACTIVATION], ends, kinds,
    )  # fmt: skip
