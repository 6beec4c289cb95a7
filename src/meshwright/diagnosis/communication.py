"""Collectives over the ranks: clocks brought together, waiting told from transfer, and what each group achieves."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.timeline.columns import Kind, Timeline
from meshwright.traces.match import match_collectives

Integers = NDArray[np.int64]

SAME_CLOCK_NS = 50_000
"""Clocks that differ by less are one: ends of a collective agree within 1-7 µs on a host (8 GPUs, measured)."""


APART_NS = 200_000
"""Parts that end further apart are not one collective (guessed: 30 times what is seen on one host)."""


@dataclass(frozen=True)
class Collectives:
    """Matched collectives, flat: entry k is one rank's part of collective `which[k]`.

    `transfer` and `last` are by collective: its nanoseconds once all members had come, and the rank that came last.
    `wait` is by entry: the rank's nanoseconds inside it before that. `span` is the entry's row of the timeline.
    """

    span: Integers
    which: Integers
    rank: Integers
    step: Integers
    start: Integers
    end: Integers
    wait: Integers
    transfer: Integers
    last: Integers
    group: tuple[tuple[int, ...], ...]
    name: tuple[str, ...]
    size: Integers
    inferred: bool
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.transfer)


def collectives_of(timeline: Timeline) -> Collectives:
    """The collectives that all their recorded members (two at least) took part in.

    The transfer is the shortest duration among members (the last to come waits for nobody), which needs no common
    clock; every other member waited for what its own duration is longer.
    """
    found = match_collectives(timeline)
    whole = [c for c in found.whole if len(c.spans) > 1]
    span = np.array([s for c in whole for s in c.spans.values()], np.int64)
    counts = np.array([len(c.spans) for c in whole], np.int64)
    which = np.repeat(np.arange(len(whole)), counts)
    start, end = timeline.start[span], timeline.end[span]
    first = np.append(0, np.cumsum(counts)[:-1]).astype(np.int64)
    length = end - start
    rank = timeline.rank[span].astype(np.int64)
    if len(whole):
        transfer = np.minimum.reduceat(length, first)
        order = np.lexsort((length, which))
        last = rank[order[first]]
    else:
        transfer = last = np.empty(0, np.int64)
    names = tuple(timeline.names[timeline.name[next(iter(c.spans.values()))]] for c in whole)
    return Collectives(
        span, which, rank, timeline.step[span].astype(np.int64), start, end, length - transfer[which], transfer, last,
        tuple(c.group for c in whole), names,
        timeline.size[span[first]] if len(whole) else np.empty(0, np.int64), found.inferred, found.notes,
    )  # fmt: skip


def only(collectives: Collectives, chosen: NDArray[np.bool_]) -> Collectives:
    """Some of the collectives; `chosen` is by collective."""
    entries = chosen[collectives.which]
    number = np.cumsum(chosen) - 1
    picked = np.flatnonzero(chosen).tolist()
    columns = {name: getattr(collectives, name)[entries] for name in ("span", "rank", "step", "start", "end", "wait")}
    return replace(
        collectives, **columns, which=number[collectives.which[entries]], transfer=collectives.transfer[chosen],
        last=collectives.last[chosen], size=collectives.size[chosen],
        group=tuple(collectives.group[k] for k in picked), name=tuple(collectives.name[k] for k in picked),
    )  # fmt: skip


def believable(timeline: Timeline, collectives: Collectives) -> Collectives:
    """Those that can be one collective: where no group was recorded, parts must end together (within 200 µs).

    Equal names in equal order over all ranks are not enough: groups of a job may run different collectives.
    """
    if not len(collectives):
        return collectives
    first = np.flatnonzero(np.append(True, np.diff(collectives.which) > 0))
    spread = np.maximum.reduceat(collectives.end, first) - np.minimum.reduceat(collectives.end, first)
    nameless = timeline.group[collectives.span[first]] < 0
    doubtful = nameless & (spread > APART_NS)
    if not doubtful.any():
        return collectives
    note = (
        f"{int(doubtful.sum())} of {len(collectives)} collectives record no group and do not end together on the ranks "
        "that ran them in the same order: left unmatched"
    )
    return replace(only(collectives, ~doubtful), notes=(*collectives.notes, note))


@dataclass(frozen=True)
class Clocks:
    """What was added to each rank's times, and how far ends of a collective still differ: seconds, the
    median of the group where it is largest."""

    offset_s: Mapping[int, float]
    residual_s: float | None  # None: nothing to compare


def one_clock(timeline: Timeline, collectives: Collectives) -> tuple[Timeline, Clocks]:
    """The timeline with clocks of different hosts brought together by the ends of shared collectives.

    A collective ends everywhere at once, so within a group a rank's clock is off by the median difference of its
    ends to the group's mean; the offsets of all ranks that fit all groups best are taken (least squares, each group
    counting once). Applied where some offset is over 50 µs.
    """
    ranks = np.unique(collectives.rank)
    if not len(ranks):
        return timeline, Clocks({}, None)
    at = np.searchsorted(ranks, collectives.rank)
    first = np.flatnonzero(np.append(True, np.diff(collectives.which) > 0))
    ends = (collectives.end - int(collectives.end.min())).astype(np.float64)
    counts = np.diff(np.append(first, len(ends)))
    gap = ends - (np.add.reduceat(ends, first) / counts)[collectives.which]
    numbers = {group: k for k, group in enumerate(dict.fromkeys(collectives.group))}
    of_group = np.array([numbers[group] for group in collectives.group])[collectives.which]
    rows, told = [], []
    for group in range(len(numbers)):
        members = np.unique(at[of_group == group])
        for member in members.tolist():
            row = np.zeros(len(ranks))
            row[members] = -1 / len(members)
            row[member] += 1
            rows.append(row)
            told.append(float(np.median(gap[(of_group == group) & (at == member)])))
    offset = np.linalg.lstsq(np.array(rows), np.array(told), rcond=None)[0]
    offset -= offset[0]
    moved = ends - offset[at]
    spread = np.maximum.reduceat(moved, first) - np.minimum.reduceat(moved, first)
    by_group = of_group[first]
    residual = max(float(np.median(spread[by_group == group])) for group in range(len(numbers))) / 1e9
    if np.abs(offset).max() < SAME_CLOCK_NS:
        return timeline, Clocks(dict.fromkeys(ranks.tolist(), 0.0), residual)
    shift = np.zeros(int(max(timeline.rank.max(initial=0), ranks[-1])) + 1, np.int64)
    shift[ranks] = np.rint(offset).astype(np.int64)
    by_span = shift[timeline.rank]
    added = {rank: -value / 1e9 for rank, value in zip(ranks.tolist(), offset.tolist(), strict=True)}
    return replace(timeline, start=timeline.start - by_span, end=timeline.end - by_span), Clocks(added, residual)


def bus_factor(name: str, members: int) -> float:
    """Bytes that cross each member's link for a byte of the collective's size (ring algorithms, nccl-tests)."""
    lower = name.lower().replace("_", "")
    if "allreduce" in lower:
        return 2 * (members - 1) / members
    if any(kind in lower for kind in ("allgather", "reducescatter", "alltoall")):
        return (members - 1) / members
    return 1.0


def bandwidths(collectives: Collectives) -> list[dict[str, object]]:
    """Bus bandwidth by operation, group and size: GB/s of the median transfer, waits left out; sizes recorded only."""
    keyed: dict[tuple[str, tuple[int, ...], int], list[int]] = {}
    for k in range(len(collectives)):
        if collectives.size[k] > 0 and collectives.transfer[k] > 0:
            keyed.setdefault((collectives.name[k], collectives.group[k], int(collectives.size[k])), []).append(k)
    rows: list[dict[str, object]] = []
    for (name, group, size), chosen in keyed.items():
        seconds = float(np.median(collectives.transfer[chosen])) / 1e9
        rows.append({
            "operation": name, "group": list(group), "bytes": size, "count": len(chosen), "transfer_s": seconds,
            "bus_gb_per_s": size * bus_factor(name, len(group)) / seconds / 1e9,
        })  # fmt: skip
    return rows


def waited(timeline: Timeline, collectives: Collectives) -> dict[int, float]:
    """Seconds each rank waited inside collectives for others, over the whole recording."""
    return {
        rank: float(collectives.wait[collectives.rank == rank].sum()) / 1e9 / timeline.time_scale
        for rank in np.unique(collectives.rank).tolist()
    }  # fmt: skip


def communicates(timeline: Timeline) -> bool:
    """Is any communication recorded?"""
    return bool((timeline.kind == Kind.COMMUNICATION).any())
