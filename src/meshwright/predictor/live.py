"""Which micro-batches are alive together on each pipeline rank, once for a schedule, for any bytes a stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from meshwright.layout.degrees import Schedule
from meshwright.layout.schedules import actions, is_standard

_STEADY = 4  # rounds of pp micro-batches after which a published schedule repeats itself


@dataclass(frozen=True)
class Live:
    """`counts[k, s]`: micro-batches alive on stage s in the k-th candidate moment; rows of a rank begin at `first`."""

    counts: NDArray[np.float64]
    first: NDArray[np.int64]

    def peak(self, weights: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """The most weight alive at once on each pipeline rank; `weights` by stage (bytes of one micro-batch, say)."""
        peaks: NDArray[np.float64] = np.maximum.reduceat(self.counts @ np.asarray(weights, np.float64), self.first)
        return peaks


def enough(schedule: Schedule, placement: tuple[int, ...], micro_batches: int) -> int:
    """A number of micro-batches with the same peaks: what is alive stops growing once the pipeline is full."""
    pp = max(placement) + 1
    steady = _STEADY * pp
    if schedule in ("gpipe", "looped-bfs") or not is_standard(schedule, placement) or micro_batches <= steady:
        return micro_batches
    if schedule in ("interleaved", "zb-h1") and micro_batches % pp:
        return micro_batches  # its rounds depend on the exact number
    return steady


def live(schedule: Schedule, placement: tuple[int, ...], micro_batches: int) -> Live:
    """The moments at which a rank's live micro-batches can peak, from the schedule's own order of actions."""
    if len(placement) == 1:  # no pipeline: micro-batches are accumulated one after the other
        return Live(np.ones((1, 1)), np.zeros(1, np.int64))
    return _live(schedule, placement, enough(schedule, placement, micro_batches))


@lru_cache(maxsize=1024)
def _live(schedule: Schedule, placement: tuple[int, ...], micro_batches: int) -> Live:
    rows: list[tuple[int, ...]] = []
    first: list[int] = []
    for order in actions(schedule, placement, micro_batches):
        now, moments, growing = [0] * len(placement), set(), False
        for stage, kind, _ in order:
            if kind == "F":
                now[stage] += 1
                growing = True
            elif kind != "I":
                if growing:
                    moments.add(tuple(now))
                    growing = False
                now[stage] -= 1
        first.append(len(rows))
        rows.extend(_undominated(moments))
    return Live(np.array(rows, np.float64), np.array(first))


def _undominated(moments: set[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The moments that no other moment exceeds on every stage."""
    kept: list[tuple[int, ...]] = []
    for moment in sorted(moments, key=sum, reverse=True):
        if not any(all(a >= b for a, b in zip(other, moment, strict=True)) for other in kept):
            kept.append(moment)
    return kept
