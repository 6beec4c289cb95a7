"""Where the planner cuts a model into stages: by time, and by memory where time alone does not fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import InputError
from meshwright.layout.partition import balance, balance_placed
from meshwright.layout.schedules import default_placement
from meshwright.predictor.table import Figure, UnitTable

Stages = tuple[tuple[str, ...], ...]
Floats = NDArray[np.float64]

_PARTS = 100

SECONDS = (
    Figure.FORWARD, Figure.BACKWARD, Figure.TP_FORWARD, Figure.TP_BACKWARD, Figure.CP_FORWARD, Figure.CP_BACKWARD,
    Figure.EP_FORWARD, Figure.EP_BACKWARD,
)  # fmt: skip
"""The columns that make a unit's busy time, communication inside it included."""


def pieces_of(names: Sequence[str], whole_layers: bool) -> tuple[tuple[str, ...], ...]:
    """What may not be cut: single units, or both halves of a layer together."""
    if not whole_layers:
        return tuple((name,) for name in names)
    pieces: list[list[str]] = []
    for name in names:
        layer = name.split(".")[1] if name.startswith("layers.") else None
        if layer is not None and pieces and pieces[-1][0].split(".")[1:2] == [layer]:
            pieces[-1].append(name)
        else:
            pieces.append([name])
    return tuple(tuple(piece) for piece in pieces)


def _summed(table: UnitTable, pieces: Sequence[Sequence[str]], by_unit: Floats) -> dict[str, float]:
    position = {name: index for index, name in enumerate(table.names)}
    return {piece[0]: float(sum(by_unit[position[name]] for name in piece)) for piece in pieces}


def _whole(stages: Stages, pieces: Sequence[tuple[str, ...]]) -> Stages:
    by_first = {piece[0]: piece for piece in pieces}
    return tuple(tuple(name for first in stage for name in by_first[first]) for stage in stages)


def proportions(table: UnitTable) -> tuple[int, ...]:
    """The busy time of every unit in hundredths of the largest, at least one."""
    seconds = table.figures[:, SECONDS].sum(axis=1)
    return tuple(np.rint(seconds * (_PARTS / seconds.max())).astype(int).clip(1).tolist())


@dataclass
class Cutter:
    """Cuts by time, remembered: costs are compared to a hundredth of the largest unit, so that micro-batches and
    degrees whose units stand in the same proportion share one partition."""

    whole_layers: bool
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], Stages | None] = field(default_factory=dict)

    def __call__(
        self, table: UnitTable, coarse: tuple[int, ...], placement: tuple[int, ...], *, by_rank: bool = False
    ) -> Stages | None:
        """The partition with the least slowest stage (`by_rank`: busiest rank) for the `proportions` of the table;
        None when there are too few units."""
        key = (coarse, placement if by_rank else (len(placement),))
        if key not in self.known:
            pieces = pieces_of(table.names, self.whole_layers)
            self.known[key] = None
            if len(pieces) >= len(placement):
                cost = _summed(table, pieces, np.array(coarse, np.float64))
                names = [piece[0] for piece in pieces]
                cut = balance_placed(names, cost, placement) if by_rank else balance(names, cost, len(placement))
                self.known[key] = _whole(cut, pieces)
        return self.known[key]


def _overfull(needs: Sequence[Mapping[str, float]], limits: Sequence[float]) -> bool:
    """Filling the stages from the first on, each as far as its limit goes, leaves units over."""
    names = list(needs[0])
    at = 0
    for need, limit in zip(needs, limits, strict=True):
        room = limit
        while at < len(names) and need[names[at]] <= room:
            room -= need[names[at]]
            at += 1
    return at < len(names)


def cut_by_memory(
    table: UnitTable,
    placement: Sequence[int],
    whole_layers: bool,
    bytes_a_parameter: float,
    alive: Sequence[float],
    limits: Sequence[float],
) -> Stages | None:
    """The partition with the least slowest stage of those within each stage's limit (bytes for states and kept
    activations); `alive[s]` micro-batches are kept on stage s. One stage a rank only. None when there is none."""
    if tuple(placement) != default_placement("1f1b", len(placement)):
        return None
    pieces = pieces_of(table.names, whole_layers)
    if len(pieces) < len(placement):
        return None
    figures = table.figures
    states = (figures[:, Figure.DENSE] + figures[:, Figure.EXPERT]) * bytes_a_parameter
    by_count: dict[float, Mapping[str, float]] = {}
    for count in alive:
        if count not in by_count:
            by_count[count] = _summed(table, pieces, states + figures[:, Figure.ACTIVATION] * count)
    needs = [by_count[count] for count in alive]
    if min(limits) <= 0 or _overfull(needs, limits):
        return None
    cost = _summed(table, pieces, figures[:, SECONDS].sum(axis=1))
    try:
        cut = balance([piece[0] for piece in pieces], cost, len(placement), memory=needs, limit=list(limits))
    except InputError:
        return None
    return _whole(cut, pieces)
