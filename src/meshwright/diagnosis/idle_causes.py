"""Why a device was idle: the host had not launched the next work, a launch was on its way, or the work waited."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meshwright.diagnosis.split import Window
from meshwright.timeline.columns import Kind, Timeline
from meshwright.timeline.intervals import Intervals, intersect, subtract, union
from meshwright.traces.classify import host_cause

Integers = NDArray[np.int64]

LATENCY_NS = 20_000
"""A launched kernel that starts within this time was on its way; beyond it, it waited for other work (guessed)."""

HOST_CAUSES = ("data loading", "synchronising", "allocation", "garbage collection", "other host work")
CAUSES = (*HOST_CAUSES, "launch latency", "dependency", "launch not recorded", "nothing more to do")


def idle_by_cause(timeline: Timeline, launch: Integers, windows: Sequence[Window]) -> dict[int, dict[str, float]]:
    """Seconds a step by cause for each rank with device work; the causes of a rank sum to its idle time.

    Each gap ends where some device span starts. Before that span's launch call began, the host is to blame, by what it
    was doing (calls on the list of host calls, else other host work); during the call and for 20 µs after it, the
    launch; beyond that the span waited for work on another stream or rank. `launch` [spans, 2] as the reader gives it.
    """
    device = timeline.kind != Kind.HOST
    out: dict[int, dict[str, float]] = {}
    scale = 1e9 * timeline.time_scale * max(1, len(windows))
    for rank in timeline.recorded:
        mine = np.flatnonzero(device & (timeline.rank == rank))
        mine = mine[np.argsort(timeline.start[mine], kind="stable")]
        busy = union(timeline.start[mine], timeline.end[mine])
        by_cause = dict.fromkeys(CAUSES, 0)
        hosts = _host_spans(timeline, rank)
        for window in windows:
            gaps = subtract((np.array([window.start]), np.array([window.end])), busy)
            _charge(by_cause, gaps, timeline.start[mine], launch[mine], hosts)
        out[rank] = {cause: ns / scale for cause, ns in by_cause.items()}
    return out


def _host_spans(timeline: Timeline, rank: int) -> dict[str, Intervals]:
    """When the host of a rank was busy with each known cause."""
    host = np.flatnonzero((timeline.kind == Kind.HOST) & (timeline.rank == rank))
    named = np.array([host_cause(timeline.names[name]) or "" for name in timeline.name[host].tolist()])
    out: dict[str, Intervals] = {}
    taken: Intervals = (np.empty(0, np.int64), np.empty(0, np.int64))
    for cause in HOST_CAUSES[:-1]:
        chosen = host[named == cause] if len(host) else host
        own = subtract(union(timeline.start[chosen], timeline.end[chosen]), taken)
        out[cause] = own
        taken = union(np.append(taken[0], own[0]), np.append(taken[1], own[1]))
    return out


def _charge(
    by_cause: dict[str, int], gaps: Intervals, starts: Integers, launch: Integers, hosts: dict[str, Intervals]
) -> None:
    begin, end = gaps
    if not len(begin):
        return
    after = np.searchsorted(starts, end, side="left")
    some = after < len(starts)
    following = np.minimum(after, len(starts) - 1)
    ends_by_work = some & (starts[following] == end)
    called = np.where(ends_by_work, launch[following, 0], -1)
    by_cause["nothing more to do"] += int((end - begin)[~ends_by_work].sum())
    unknown = ends_by_work & (called < 0)
    by_cause["launch not recorded"] += int((end - begin)[unknown].sum())
    known = ends_by_work & (called >= 0)
    begin, end, called, returned = begin[known], end[known], called[known], launch[following[known], 1]
    issued = np.clip(called, begin, end)
    arrived = np.clip(np.maximum(returned + LATENCY_NS, begin + LATENCY_NS), issued, end)
    by_cause["launch latency"] += int((arrived - issued).sum())
    by_cause["dependency"] += int((end - arrived).sum())
    blamed = union(begin, issued)
    left = int((issued - begin).sum())
    for cause, busy in hosts.items():
        part = intersect(blamed, busy)
        taken = int((part[1] - part[0]).sum())
        by_cause[cause] += taken
        left -= taken
    by_cause["other host work"] += left
