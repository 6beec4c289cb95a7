"""Which micro-batches are alive together on each pipeline rank, once for a schedule, for any bytes a stage."""

from collections.abc import Iterator, Sequence
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
    counted = _counted(schedule, placement, micro_batches) if is_standard(schedule, placement) else None
    return walk_through(schedule, placement, micro_batches) if counted is None else counted


@lru_cache(maxsize=1024)
def _counted(schedule: Schedule, placement: tuple[int, ...], micro_batches: int) -> Live | None:
    """The moments of a published schedule without a walk through its actions; None where only the walk knows."""
    ranks = max(placement) + 1
    if schedule in ("interleaved", "zb-h1"):
        a_round = micro_batches_a_round(ranks, micro_batches)
        chunks = len(placement) // ranks
        if a_round is None:
            return None
        return _gathered(placement, _interleaved(ranks, chunks, micro_batches, a_round, schedule == "zb-h1"))
    folded = _folded(schedule, ranks, micro_batches)
    return None if folded is None else _gathered(placement, iter(folded))


def _interleaved(
    ranks: int, chunks: int, micro_batches: int, a_round: int, split: bool
) -> Iterator[NDArray[np.float64]]:
    """Of each rank the moments [moment, chunk] that `schedules_standard.interleaved` passes. Before its k-th backward a
    rank has begun its warm-up and k + 1 more forwards; where backward is halved, its weight halves lag by the rank's
    number. Counts change evenly between the places where one of the sequences passes to another chunk, so that any sum
    of bytes is largest at such a place."""
    whole = chunks * micro_batches
    chunk = np.arange(whole) // a_round % chunks
    begun = np.zeros((whole + 1, chunks))
    np.cumsum(chunk[:, None] == np.arange(chunks), axis=0, out=begun[1:])
    for rank in range(ranks):
        warmup = min((chunks - 1) * a_round + (1 if split else 2) * (ranks - 1 - rank), whole)
        step = np.arange(max(whole - warmup, 1))
        ahead, released = np.minimum(warmup + step + 1, whole), np.maximum(step - (rank if split else 0), 0)
        alive = begun[ahead] - begun[released, ::-1]
        turns = (released % a_round == 0) | (ahead % a_round == 0) | (step == step[-1])
        turns[alive.min(axis=1).argmax()] = True  # the moment with most of every chunk together
        yield alive[turns]


def _folded(schedule: Schedule, ranks: int, micro_batches: int) -> list[NDArray[np.float64]] | None:
    """Of each rank the moments [moment, chunk] of a V: while it is full a rank keeps 2 * ranks micro-batches (ZB-V) or
    one more (DualPipeV), the more of them on their way back the nearer the rank is to the fold."""
    if schedule == "dualpipev" and micro_batches >= 2 * ranks:
        return [np.array([[2.0 * ranks - rank, rank + 1.0]]) for rank in range(ranks)]
    if schedule == "zbv" and micro_batches <= ranks:
        return [np.array([[float(micro_batches), min(micro_batches, rank + 1.0)]]) for rank in range(ranks)]
    if schedule == "zbv" and micro_batches >= 2 * ranks - 1:
        return [
            np.array([[min(micro_batches, 2.0 * ranks - back), back] for back in (rank, rank + 1.0)])
            for rank in range(ranks)
        ]
    return None


def _gathered(placement: tuple[int, ...], ranks: Iterator[NDArray[np.float64]]) -> Live:
    """The moments of all ranks over all stages; those that another moment exceeds on every chunk are left out."""
    rows, first, of_stage = [], [0], np.array(placement)
    for rank, moments in enumerate(ranks):
        if len(moments) > 1:
            below = (moments[:, None] <= moments[None]).all(axis=2)
            alike = below & below.T
            moments = moments[~((below & ~alike) | np.tril(alike, -1)).any(axis=1)]
        whole = np.zeros((len(moments), len(placement)))
        whole[:, of_stage == rank] = moments
        rows.append(whole)
        first.append(first[-1] + len(whole))
    return Live(np.concatenate(rows), np.array(first[:-1]))


@lru_cache(maxsize=1024)
def walk_through(schedule: Schedule, placement: tuple[int, ...], micro_batches: int) -> Live:
    """The moments of any schedule, by a walk through every action of every rank."""
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
