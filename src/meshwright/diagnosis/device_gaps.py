"""Idle time of devices split by its cause, where it is known when the host launched what came next."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.timeline.columns import Kind, Timeline
from meshwright.timeline.intervals import union


@dataclass(frozen=True, slots=True)
class Gaps:
    """Nanoseconds of one rank between its first and last device span.

    `host`: the host had not begun to launch what came next; `launched`: it had, and the device had not begun it;
    `unknown`: no launch record of what came next.
    """

    rank: int
    span: int
    idle: int
    host: int
    launched: int
    unknown: int


def gaps_of(timeline: Timeline, rank: int, launched: NDArray[np.int64]) -> Gaps:
    """The gaps of one rank; `launched` is when the host began to launch each span, the largest int64 if not known."""
    own = (timeline.rank == rank) & (timeline.kind != Kind.HOST)
    if not own.any():
        return Gaps(rank, 0, 0, 0, 0, 0)
    order = np.argsort(timeline.start[own], kind="stable")
    starts, ends, asked = (column[own][order] for column in (timeline.start, timeline.end, launched))
    busy_start, busy_end = union(starts, ends)
    gap_start, gap_end = busy_end[:-1], busy_start[1:]
    following = np.searchsorted(starts, gap_end)
    when = asked[following]
    known = when != np.iinfo(np.int64).max
    length = gap_end - gap_start
    host = np.where(known, np.clip(when - gap_start, 0, length), 0)
    total = int(length.sum())
    unknown = int(length[~known].sum())
    late = int(host.sum())
    return Gaps(rank, int(ends.max() - starts.min()), total, late, total - late - unknown, unknown)
