"""Where the planner cuts a model into stages: by time, and by memory where time alone does not fit."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import InputError
from meshwright.layout.partition import balance, balance_placed
from meshwright.layout.schedules import default_placement
from meshwright.predictor.table import Figure, UnitTable

Stages = tuple[tuple[str, ...], ...]
Floats = NDArray[np.float64]

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


def cut_by_time(
    table: UnitTable, placement: Sequence[int], whole_layers: bool, *, by_rank: bool = False
) -> Stages | None:
    """The partition with the least slowest stage (`by_rank`: least busiest rank); None when there are too few units."""
    pieces = pieces_of(table.names, whole_layers)
    if len(pieces) < len(placement):
        return None
    cost = _summed(table, pieces, table.figures[:, SECONDS].sum(axis=1))
    names = [piece[0] for piece in pieces]
    if by_rank:
        return _whole(balance_placed(names, cost, placement), pieces)
    return _whole(balance(names, cost, len(placement)), pieces)


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
    needs: list[Mapping[str, float]] = [
        _summed(table, pieces, states + figures[:, Figure.ACTIVATION] * count) for count in alive
    ]
    cost = _summed(table, pieces, figures[:, SECONDS].sum(axis=1))
    try:
        cut = balance([piece[0] for piece in pieces], cost, len(placement), memory=needs, limit=list(limits))
    except InputError:
        return None
    return _whole(cut, pieces)
