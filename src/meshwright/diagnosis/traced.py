"""What traces alone tell of a job: who waits for whom, which ranks do the same work, what they wait for."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.diagnosis.communication import Clocks, Collectives, believable, collectives_of, one_clock
from meshwright.diagnosis.idle_causes import idle_by_cause
from meshwright.diagnosis.split import Window, rank_splits, split_window, windows_of
from meshwright.files.findings import RankSplit
from meshwright.timeline.columns import Kind, Timeline
from meshwright.timeline.intervals import Intervals, clip, subtract, total, union

Integers = NDArray[np.int64]
Seconds = NDArray[np.float64]

_TRANSFERS = ("send", "recv", "sendrecv")


@dataclass(frozen=True)
class Traced:
    """A job's traces on one clock. Arrays are [steps, recorded ranks] device seconds.

    `own_s` is the step less the waiting inside collectives: a rank that others wait for has most of it. `peers` are
    ranks that do the same work: one pipeline stage, or all where no transfers between stages were seen; `stages` says
    whether they are stages, in the order of their ranks.
    """

    timeline: Timeline
    launch: Integers
    windows: tuple[Window, ...]
    splits: tuple[RankSplit, ...]
    step_s: float
    collectives: Collectives
    clocks: Clocks
    own_s: Seconds
    compute_s: Seconds
    idle: Mapping[int, Mapping[str, float]]
    peers: tuple[tuple[int, ...], ...]
    stages: bool
    uses: Mapping[tuple[int, ...], str]

    def column(self, rank: int) -> int:
        """The column of a rank."""
        return self.timeline.recorded.index(rank)

    def stage_of(self, rank: int) -> tuple[int, ...]:
        """The stage of a rank, as findings want it; () where stages are not known."""
        return tuple(k for k, ranks in enumerate(self.peers) if rank in ranks) if self.stages else ()


def traced(timeline: Timeline, launch: Integers, uses: Mapping[tuple[int, ...], str] | None = None) -> Traced | None:
    """The evidence in traces; None where no device work is in them."""
    collectives = collectives_of(timeline)
    aligned, clocks = one_clock(timeline, collectives)
    if aligned is not timeline:
        moved = np.zeros(len(timeline), np.int64) + (aligned.start - timeline.start)
        launch = np.where(launch < 0, -1, launch + moved[:, None])
        collectives = collectives_of(aligned)
    collectives = believable(aligned, collectives)
    windows = windows_of(aligned)
    if not windows:
        return None
    lengths = np.array([window.length for window in windows]) / 1e9
    ranks = aligned.recorded
    compute = np.zeros((len(windows), len(ranks)))
    wait = np.zeros_like(compute)
    device = aligned.kind != Kind.HOST
    for column, rank in enumerate(ranks):
        own = aligned.select((aligned.rank == rank) & device)
        waiting = _waiting(collectives, rank, own)
        for row, window in enumerate(windows):
            compute[row, column] = split_window(own, rank, window.start, window.end).compute / 1e9
            wait[row, column] = total(*clip(*waiting, window.start, window.end)) / 1e9
    peers, stages = _peers(collectives, ranks)
    return Traced(
        aligned, launch, windows, rank_splits(aligned, windows), float(np.median(lengths)), collectives, clocks,
        lengths[:, None] - wait, compute, idle_by_cause(aligned, launch, windows) if len(launch) else {},
        peers, stages, uses or {},
    )  # fmt: skip


def _waiting(collectives: Collectives, rank: int, own: Timeline) -> Intervals:
    """When a rank did nothing but wait inside collectives: those of several streams count once, none beside compute."""
    mine = collectives.rank == rank
    start, wait = collectives.start[mine], collectives.wait[mine]
    computing = np.isin(own.kind, (Kind.COMPUTE, Kind.UNCLASSIFIED))
    return subtract(union(start, start + wait), (own.start[computing], own.end[computing]))


def is_transfer(collectives: Collectives, k: int) -> bool:
    """Is a matched collective a transfer between two ranks?"""
    name = collectives.name[k].lower().replace("_", "")
    return len(collectives.group[k]) == 2 and any(name.endswith(end) for end in _TRANSFERS)


def _peers(collectives: Collectives, ranks: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], ...], bool]:
    """Ranks joined by groups that hold no two ends of a transfer: the stages of a pipeline, or all ranks as one."""
    pairs = {frozenset(collectives.group[k]) for k in range(len(collectives)) if is_transfer(collectives, k)}
    if not pairs:
        return (tuple(ranks),), False
    parent = {rank: rank for rank in ranks}

    def root(rank: int) -> int:
        while parent[rank] != rank:
            rank = parent[rank]
        return rank

    for group in set(collectives.group):
        if frozenset(group) in pairs or any(pair <= set(group) for pair in pairs):
            continue
        seen = [rank for rank in group if rank in parent]
        for rank in seen[1:]:
            parent[root(rank)] = root(seen[0])
    found: dict[int, list[int]] = {}
    for rank in ranks:
        found.setdefault(root(rank), []).append(rank)
    return tuple(sorted(tuple(members) for members in found.values())), True
