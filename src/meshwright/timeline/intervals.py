"""The algebra of time intervals: half-open [start, end) in integer nanoseconds, as two arrays.

Results are always disjoint, sorted, non-empty and maximal (touching intervals are joined); inputs need not be.
Everything is vectorised: O(n log n) for n intervals.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Times = NDArray[np.int64]
Intervals = tuple[Times, Times]


def union(starts: ArrayLike, ends: ArrayLike) -> Intervals:
    """The moments covered by any of the intervals."""
    first, last = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    real = last > first
    if not real.all():
        first, last = first[real], last[real]
    if not len(first):
        return first, last
    if np.any(first[1:] < first[:-1]):
        order = np.argsort(first, kind="stable")
        first, last = first[order], last[order]
    reach = np.maximum.accumulate(last)
    opens = np.empty(len(first), np.bool_)
    opens[0] = True
    np.greater(first[1:], reach[:-1], out=opens[1:])
    closes = np.append(opens[1:], True)
    return first[opens], reach[closes]


def total(starts: ArrayLike, ends: ArrayLike) -> int:
    """Nanoseconds covered by any of the intervals; what overlaps counts once."""
    first, last = union(starts, ends)
    return int((last - first).sum())


def clip(starts: ArrayLike, ends: ArrayLike, low: int, high: int) -> Intervals:
    """The part of the covered moments that lies in [low, high)."""
    return union(np.maximum(np.asarray(starts, np.int64), low), np.minimum(np.asarray(ends, np.int64), high))


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The moments covered by both."""
    return _where(a, b, 3)


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The moments covered by `a` and not by `b`."""
    return _where(a, b, 1)


def _where(a: Intervals, b: Intervals, wanted: int) -> Intervals:
    """Moments whose coverage is `wanted`: 1 for a alone, 2 for b alone, 3 for both."""
    a, b = union(*a), union(*b)
    edges = np.concatenate([a[0], a[1], b[0], b[1]])
    change = np.repeat(np.array([1, -1, 2, -2], np.int8), [len(a[0]), len(a[1]), len(b[0]), len(b[1])])
    order = np.argsort(edges, kind="stable")
    edges = edges[order]
    coverage = np.cumsum(change[order])
    inside = coverage[:-1] == wanted
    return union(edges[:-1][inside], edges[1:][inside])
