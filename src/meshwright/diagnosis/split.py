"""Where each rank's time went: an exact four-way split of one common window a step."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from meshwright.files.findings import RankSplit
from meshwright.timeline.columns import Kind, Timeline
from meshwright.timeline.intervals import Intervals, clip, total, union


@dataclass(frozen=True, slots=True)
class Window:
    """One step, the same for all ranks: [start, end) in wall nanoseconds; `step` -1 where steps are not marked."""

    step: int
    start: int
    end: int

    @property
    def length(self) -> int:
        """Wall nanoseconds."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Split:
    """Nanoseconds of one rank in one window. The first four sum to the window exactly.

    `compute` includes kernels that could not be classified (`unclassified` says how much of it); `comm` is all
    communication, covered by compute or not.
    """

    compute: int
    exposed_comm: int
    exposed_copy: int
    idle: int
    comm: int
    unclassified: int


def windows_of(timeline: Timeline) -> tuple[Window, ...]:
    """The steps seen, each from the first to the last device span of any rank.

    Spans outside marked steps are left out; where no step is marked, all spans are one window. Steps whose spans
    overlap (a device that lags behind its host) meet where the later one begins, so that no time counts twice.
    """
    device = timeline.kind != Kind.HOST
    steps = np.unique(timeline.step[device])
    marked = steps[steps >= 0]
    found = []
    for step in marked.tolist() if len(marked) else steps.tolist():
        mine = device & (timeline.step == step)
        found.append(Window(step, int(timeline.start[mine].min()), int(timeline.end[mine].max())))
    for k, (one, following) in enumerate(pairwise(found)):
        if one.start < following.start < one.end:
            found[k] = Window(one.step, one.start, following.start)
    return tuple(found)


def split_window(timeline: Timeline, rank: int, start: int, end: int) -> Split:
    """The split of one rank over [start, end).

    With C compute, N communication, M copies: compute |C|, exposed communication |C+N| - |C|, exposed copies
    |C+N+M| - |C+N|, idle the rest; |S| is the time covered by the union of a set, so that streams never add up.
    """
    mine = timeline.rank == rank

    def covered(*kinds: Kind) -> Intervals:
        chosen = mine & np.logical_or.reduce([timeline.kind == kind for kind in kinds])
        return clip(timeline.start[chosen], timeline.end[chosen], start, end)

    busy = covered(Kind.COMPUTE, Kind.UNCLASSIFIED)
    comm = covered(Kind.COMMUNICATION)
    copies = covered(Kind.COPY)
    with_comm = _joined(busy, comm)
    with_copies = _joined(with_comm, copies)
    window, compute, both, everything = end - start, total(*busy), total(*with_comm), total(*with_copies)
    split = Split(
        compute, both - compute, everything - both, window - everything, total(*comm),
        total(*covered(Kind.UNCLASSIFIED)),
    )  # fmt: skip
    assert split.compute + split.exposed_comm + split.exposed_copy + split.idle == window
    assert split.idle >= 0
    return split


def _joined(a: Intervals, b: Intervals) -> Intervals:
    return union(np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]]))


def rank_splits(timeline: Timeline, windows: Sequence[Window]) -> tuple[RankSplit, ...]:
    """The mean split a step of every recorded rank, in device seconds."""
    out = []
    device_ns = 1e9 * timeline.time_scale * max(1, len(windows))
    whole = sum(window.length for window in windows) / device_ns
    for rank in timeline.recorded:
        own = timeline.select((timeline.rank == rank) & (timeline.kind != Kind.HOST))
        parts = [split_window(own, rank, window.start, window.end) for window in windows]
        mean = {name: sum(getattr(part, name) for part in parts) / device_ns for name in Split.__slots__}
        out.append(
            RankSplit(
                rank=rank,
                window_s=whole,
                compute_s=mean["compute"],
                exposed_comm_s=mean["exposed_comm"],
                exposed_copy_s=mean["exposed_copy"],
                idle_s=mean["idle"],
                comm_s=mean["comm"],
                unclassified_s=mean["unclassified"],
            )
        )
    return tuple(out)
