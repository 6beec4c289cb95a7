"""Which micro-batches are alive together on each pipeline rank, once for a schedule, for any bytes a stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from meshwright.layout.degrees import Schedule
from meshwright.layout.schedules import actions, is_standard
from meshwright.layout.schedules_standard import micro_batches_a_round

_STEADY = 2  # rounds of pp micro-batches after which a published schedule repeats itself


@dataclass(frozen=True, slots=True)
class MeanWeights:
    """What a byte of activations counts when it counts alike on every rank, the smallest weight of a rank then, and
    the fewest micro-batches that any of the ranks keeps of each of its stages at one moment."""

    alike: float
    smallest: float
    plain: float
    ranks: int

    def floor(self, total: float, states: float) -> float:
        """Bytes that the fullest rank has at least when `total` bytes of one micro-batch's activations and `states`
        bytes of anything else are spread over the stages in whatever manner.

        The fullest rank has no less than any weighted mean of the ranks. Taken: the plain mean, and the mean with
        weights that make a byte of activations count alike on every rank.
        """
        return max(total * self.alike + states * self.smallest, (total * self.plain + states) / self.ranks)


@dataclass(frozen=True)
class Live:
    """`counts[k, s]`: micro-batches alive on stage s in the k-th candidate moment; rows of a rank begin at `first`."""

    counts: NDArray[np.float64]
    first: NDArray[np.int64]

    def peak(self, weights: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """The most weight alive at once on each pipeline rank; `weights` by stage (bytes of one micro-batch, say)."""
        peaks: NDArray[np.float64] = np.maximum.reduceat(self.counts @ np.asarray(weights, np.float64), self.first)
        return peaks

    def mean_weights(self) -> MeanWeights:
        """Weights for a bound of what the fullest rank has at least, see `MeanWeights.floor`."""
        ranks = len(self.first)
        rank_of = np.repeat(np.arange(ranks), np.diff([*self.first.tolist(), len(self.counts)]))
        own = np.logical_or.reduceat(self.counts > 0, self.first)[rank_of]
        # Micro-batches that a rank keeps of each of its stages in the moment when that is most; 0 when never of all.
        held = np.maximum.reduceat(np.where(own, self.counts, np.inf).min(axis=1), self.first)
        if not held.all():  # a rank never keeps all its stages at once: only the other bound says something
            return MeanWeights(0.0, 0.0, 0.0, ranks)
        whole = float((1 / held).sum())
        return MeanWeights(1 / whole, float((1 / held).min()) / whole, float(held.min()), ranks)


def enough(schedule: Schedule, placement: tuple[int, ...], micro_batches: int) -> int:
    """A number of micro-batches with the same peaks: what is alive stops growing once the pipeline is full."""
    pp = max(placement) + 1
    steady = _STEADY * pp
    if not is_standard(schedule, placement) or micro_batches <= steady:
        return micro_batches
    if schedule in ("interleaved", "zb-h1") and micro_batches % pp:
        return micro_batches  # its rounds depend on the exact number
    return steady


def live(schedule: Schedule, placement: tuple[int, ...], micro_batches: int) -> Live:
    """The moments at which a rank's live micro-batches can peak, from the schedule's own order of actions."""
    ranks = max(placement) + 1
    if len(placement) == 1:  # no pipeline: micro-batches are accumulated one after the other
        return Live(np.ones((1, 1)), np.zeros(1, np.int64))
    if schedule == "1f1b" and is_standard(schedule, placement) and len(placement) == ranks:
        return Live(np.diag(np.minimum(micro_batches, np.arange(ranks, 0.0, -1))), np.arange(ranks))
    if schedule in ("gpipe", "looped-bfs"):  # every forward comes before the first backward
        here = np.equal.outer(np.arange(ranks), np.asarray(placement))
        return Live(here * float(micro_batches), np.arange(ranks))
    micro_batches = enough(schedule, placement, micro_batches)
    a_round = micro_batches_a_round(ranks, micro_batches)
    if schedule == "interleaved" and a_round is not None and is_standard(schedule, placement):
        return _interleaved(ranks, len(placement) // ranks, micro_batches, a_round)
    return _live(schedule, placement, micro_batches)


@lru_cache(maxsize=1024)
def _interleaved(ranks: int, chunks: int, micro_batches: int, a_round: int) -> Live:
    """What a walk through `schedules_standard.interleaved` finds, counted at once. Before its k-th release a rank has
    begun its warm-up and k + 1 more forwards. Counts change evenly between the places where one of the two sequences
    passes to another chunk, so that any sum of bytes is largest at such a place."""
    whole = chunks * micro_batches
    chunk = np.arange(whole) // a_round % chunks
    begun = np.zeros((whole + 1, chunks))
    np.cumsum(chunk[:, None] == np.arange(chunks), axis=0, out=begun[1:])
    rows, first, count = [], [], 0
    for rank in range(ranks):
        warmup = min((chunks - 1) * a_round + 2 * (ranks - 1 - rank), whole)
        released = np.arange(max(whole - warmup, 1))
        ahead = np.minimum(warmup + released + 1, whole)
        alive = begun[ahead] - begun[released, ::-1]
        turns = (released % a_round == 0) | (ahead % a_round == 0) | (released == released[-1])
        turns[alive.min(axis=1).argmax()] = True  # the moment with most of every chunk together
        moments = np.unique(alive[turns], axis=0)
        under = (moments[:, None] <= moments[None]).all(axis=2).sum(axis=1) > 1  # by another than itself
        kept = np.zeros((int((~under).sum()), ranks * chunks))
        kept[:, rank::ranks] = moments[~under]
        rows.append(kept)
        first.append(count)
        count += len(kept)
    return Live(np.concatenate(rows), np.array(first))


@lru_cache(maxsize=1024)
def _live(schedule: Schedule, placement: tuple[int, ...], micro_batches: int) -> Live:
    rows: list[NDArray[np.float64]] = []
    first: list[int] = []
    count = 0
    for rank, order in enumerate(actions(schedule, placement, micro_batches)):
        own = [stage for stage, holder in enumerate(placement) if holder == rank]
        index = {stage: position for position, stage in enumerate(own)}
        now, moments, growing = [0] * len(own), set(), False
        for stage, kind, _ in order:
            if kind == "F":
                now[index[stage]] += 1
                growing = True
            elif kind != "I":
                if growing:
                    moments.add(tuple(now))
                    growing = False
                now[index[stage]] -= 1
        kept = _undominated(moments)
        whole = np.zeros((len(kept), len(placement)))
        whole[:, own] = kept
        first.append(count)
        rows.append(whole)
        count += len(kept)
    return Live(np.concatenate(rows), np.array(first))


def _undominated(moments: set[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The moments that no other moment exceeds on every stage."""
    kept: list[tuple[int, ...]] = []
    for moment in sorted(moments, key=sum, reverse=True):
        if not any(all(a >= b for a, b in zip(other, moment, strict=True)) for other in kept):
            kept.append(moment)
    return kept
