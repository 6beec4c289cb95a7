"""Where the planner cuts a model into stages: by time, and by memory where time alone does not fit."""

from collections.abc import Sequence
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


def _whole(stages: Stages, pieces: Sequence[tuple[str, ...]]) -> Stages:
    by_first = {piece[0]: piece for piece in pieces}
    return tuple(tuple(name for first in stage for name in by_first[first]) for stage in stages)


def proportions(table: UnitTable) -> bytes:
    """The busy time of every unit in hundredths of the largest, at least one; a byte each."""
    seconds = table.figures[:, SECONDS].sum(axis=1)
    parts: bytes = np.rint(seconds * (_PARTS / seconds.max())).clip(1).astype(np.uint8).tobytes()
    return parts


@dataclass
class Cutter:
    """Cuts by time, remembered: costs are compared to a hundredth of the largest unit, so that micro-batches and
    degrees whose units stand in the same proportion share one partition."""

    whole_layers: bool
    known: dict[tuple[bytes, tuple[int, ...], tuple[float, ...]], Stages | None] = field(default_factory=dict)
    pieces: tuple[tuple[str, ...], ...] = ()
    starts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def __call__(
        self, table: UnitTable, coarse: bytes, placement: tuple[int, ...], *, by_rank: bool = False,
        paces: tuple[float, ...] = (),
    ) -> Stages | None:  # fmt: skip
        """The partition with the least slowest stage (`by_rank`: busiest rank) for the `proportions` of the table;
        None when there are too few units. Tables are of one model. `paces`: how fast each stage runs, where
        devices differ."""
        key = (coarse, placement if by_rank else (len(placement),), paces)
        if key not in self.known:
            pieces, starts = self.pieces_of(table)
            self.known[key] = None
            if len(pieces) >= len(placement):
                cost = np.add.reduceat(np.frombuffer(coarse, np.uint8).astype(np.float64), starts)
                names = [piece[0] for piece in pieces]
                costs = dict(zip(names, cost.tolist(), strict=True))
                speed = list(paces) or None
                if by_rank:
                    by_rank_speed = (
                        None if speed is None else [speed[placement.index(r)] for r in range(max(placement) + 1)]
                    )
                    cut = balance_placed(names, costs, placement, speed=by_rank_speed)
                else:
                    cut = balance(names, costs, len(placement), speed=speed)
                self.known[key] = _whole(cut, pieces)
        return self.known[key]

    def pieces_of(self, table: UnitTable) -> tuple[tuple[tuple[str, ...], ...], NDArray[np.int64]]:
        """What may not be cut, and the first unit of each piece."""
        if not self.pieces:
            self.pieces = pieces_of(table.names, self.whole_layers)
            sizes = np.array([len(piece) for piece in self.pieces])
            self.starts = sizes.cumsum() - sizes
        return self.pieces, self.starts


def _overfull(needs: Sequence[Floats], limits: Sequence[float]) -> bool:
    """Filling the stages from the first on, each as far as its limit goes, leaves pieces over."""
    at, count = 0, len(needs[0])
    for need, limit in zip(needs, limits, strict=True):
        if at < count:
            at += int(np.searchsorted(need[at:].cumsum(), limit, side="right"))
    return at < count


def cut_by_memory(
    cutter: Cutter,
    table: UnitTable,
    placement: Sequence[int],
    bytes_a_parameter: float,
    alive: Sequence[float],
    limits: Sequence[float],
    paces: Sequence[float] = (),
) -> Stages | None:
    """The partition with the least slowest stage of those within each stage's limit (bytes for states and kept
    activations); `alive[s]` micro-batches are kept on stage s. One stage a rank only. None when there is none."""
    if tuple(placement) != default_placement("1f1b", len(placement)):
        return None
    pieces, starts = cutter.pieces_of(table)
    if len(pieces) < len(placement) or min(limits) <= 0:
        return None
    figures = np.add.reduceat(table.figures, starts, axis=0)
    states = (figures[:, Figure.DENSE] + figures[:, Figure.EXPERT]) * bytes_a_parameter
    by_count = {count: states + figures[:, Figure.ACTIVATION] * count for count in set(alive)}
    if _overfull([by_count[count] for count in alive], limits):
        return None
    names = [piece[0] for piece in pieces]
    costs = dict(zip(names, figures[:, SECONDS].sum(axis=1).tolist(), strict=True))
    needs = {count: dict(zip(names, need.tolist(), strict=True)) for count, need in by_count.items()}
    try:
        memory = [needs[count] for count in alive]
        speed = list(paces) or None
        cut = balance(names, costs, len(placement), speed=speed, memory=memory, limit=list(limits))
    except InputError:
        return None
    return _whole(cut, pieces)
