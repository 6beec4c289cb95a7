"""What the events of one trace say together: who launched a kernel, what a collective is, what a CPU rank did."""

import numpy as np
from numpy.typing import NDArray

from meshwright.timeline.columns import Kind
from meshwright.timeline.intervals import subtract
from meshwright.traces.classify import host_communication

Integers = NDArray[np.int64]


def linked(correlation: Integers, launches: Integers) -> Integers:
    """[spans, 2] start and end of the call that launched each span, -1 where none is recorded.

    `launches` has correlation, start, end, thread; of several calls with one number the last counts.
    """
    row = _launch_rows(correlation, launches)
    out = np.full((len(correlation), 2), -1, np.int64)
    out[row >= 0] = launches[row[row >= 0]][:, 1:3]
    return out


def _launch_rows(correlation: Integers, launches: Integers) -> Integers:
    if not len(launches):
        return np.full(len(correlation), -1, np.int64)
    order = np.argsort(launches[:, 0], kind="stable")
    keys = launches[order, 0]
    at = np.maximum(np.searchsorted(keys, correlation, side="right") - 1, 0)
    return np.where((keys[at] == correlation) & (correlation >= 0), order[at], -1)


def with_calls(rows: Integers, correlation: Integers, launches: Integers, calls: Integers) -> Integers:
    """The rows, with communication that carries no metadata described by the host operation that launched it.

    `calls` has start, end, name, thread, group, sequence, size of operations that describe a collective: the one on
    the launching thread in which the launch call began.
    """
    bare = np.flatnonzero((rows[:, 2] == Kind.COMMUNICATION) & (rows[:, 5] < 0) & (rows[:, 6] < 0))
    launch = _launch_rows(correlation[bare], launches)
    bare, launch = bare[launch >= 0], launch[launch >= 0]
    if not len(bare) or not len(calls):
        return rows
    rows = rows.copy()
    for thread in np.unique(calls[:, 3]):
        own = calls[calls[:, 3] == thread]
        own = own[np.argsort(own[:, 0], kind="stable")]
        here = launches[launch, 3] == thread
        begun = launches[launch[here], 1]
        at = np.searchsorted(own[:, 0], begun, side="right") - 1
        inside = (at >= 0) & (begun <= own[np.maximum(at, 0), 1])
        rows[np.ix_(bare[here][inside], (3, 5, 6, 7))] = own[at[inside]][:, (2, 4, 5, 6)]
    return rows


def host_rows(operations: Integers, names: tuple[str, ...]) -> Integers:
    """A CPU rank's work as rows: operations of each thread as compute, less its collectives.

    Only operations inside no other count. `operations` has start, end, name and thread, collectives of CPU groups
    among them; a row start, end, kind, name, stream, group, sequence and size.
    """
    communicates = np.array([host_communication(name) for name in names], np.bool_)
    parts = []
    for thread in np.unique(operations[:, 3]):
        own = operations[operations[:, 3] == thread]
        collective = communicates[own[:, 2]]
        inside = _outermost(own[collective])
        parts.append(_rows(inside[:, 0], inside[:, 1], inside[:, 2], Kind.COMMUNICATION, int(thread)))
        waits = inside[:, 0], inside[:, 1]
        work = _outermost(own[~collective])
        cut = np.zeros(len(work), np.bool_)
        if len(inside):
            first = np.searchsorted(waits[1], work[:, 0], side="right")
            cut = (first < len(inside)) & (waits[0][np.minimum(first, len(inside) - 1)] < work[:, 1])
        parts.append(_rows(work[~cut, 0], work[~cut, 1], work[~cut, 2], Kind.COMPUTE, int(thread)))
        for start, end, name, _ in work[cut].tolist():
            left = subtract((np.array([start]), np.array([end])), waits)
            parts.append(_rows(left[0], left[1], np.full(len(left[0]), name), Kind.COMPUTE, int(thread)))
    return np.concatenate(parts) if parts else np.empty((0, 8), np.int64)


def _rows(start: Integers, end: Integers, name: Integers, kind: Kind, thread: int) -> Integers:
    rows = np.full((len(start), 8), -1, np.int64)
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3], rows[:, 4] = start, end, kind, name, thread
    return rows


def _outermost(spans: Integers) -> Integers:
    """The spans (start, end, ...) that lie inside no other, in order of time."""
    spans = spans[np.lexsort((-spans[:, 1], spans[:, 0]))]
    if not len(spans):
        return spans
    reach = np.maximum.accumulate(spans[:, 1])
    outer: Integers = spans[np.append(True, spans[1:, 1] > reach[:-1])]
    return outer
