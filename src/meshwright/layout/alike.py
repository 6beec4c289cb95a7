"""Cuts for stages that are all alike: the same answer as the general balance, many times faster."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CLOSE = 1e-9  # relative: sums of the same costs in another order count as equal


def alike_cuts(prefix: Floats, n_stages: int) -> NDArray[np.int64]:
    """Where to cut units with these prefix sums (n + 1 of them, rising) into `n_stages` stages of at least one unit, so
    that the largest stage is least; of those with the least sum of squares; of those with the latest cuts. Needs as
    many units as stages. O(stages · units · most units of a stage)."""
    most = _least_largest(prefix, n_stages) * (1 + _CLOSE)
    n = len(prefix) - 1
    ends = np.searchsorted(prefix, prefix[:-1] + most, side="right") - 1
    width = int((ends - np.arange(n)).max())  # the most units a stage may hold
    first = np.arange(n + 1)[:, None] - np.arange(1, width + 1)[None, :]  # [end, units of the last stage - 1]
    sums = prefix[:, None] - prefix[np.maximum(first, 0)]
    squares = np.where((first >= 0) & (sums <= most), sums, np.inf) ** 2
    first = np.maximum(first, 0)
    best = np.full(n + 1, np.inf)
    best[0] = 0.0
    totals = []
    for _ in range(n_stages):
        total = best[first] + squares
        totals.append(total)
        best = total.min(axis=1)
    cuts = [n]
    for total in reversed(totals):
        row = total[cuts[-1]]
        cuts.append(cuts[-1] - 1 - int(np.argmax(row <= row.min() * (1 + _CLOSE))))
    return np.array(cuts[::-1])


def _least_largest(prefix: Floats, n_stages: int) -> float:
    """The least possible largest stage: bisection over bounds, each tried by filling stage after stage."""
    n, total = len(prefix) - 1, float(prefix[-1])
    low, high = max(float(np.diff(prefix).max()), total / n_stages), total
    sums = prefix.tolist()
    while low < high:
        bound = low + (high - low) / 2
        if bound <= low or bound >= high:
            bound = low
        ends = (np.searchsorted(prefix, prefix[:-1] + bound, side="right") - 1).tolist()
        at, largest, beyond = 0, 0.0, float("inf")
        for _ in range(n_stages):
            if at == n:
                break
            end = max(ends[at], at + 1)  # one unit always fits: the bound is no less than the largest
            largest = max(largest, sums[end] - sums[at])
            if end < n:
                beyond = min(beyond, sums[end + 1] - sums[at])  # what the bound would have to be to take one more
            at = end
        if at == n:
            if largest >= high:
                return high
            high = largest
        else:
            low = max(beyond, float(np.nextafter(bound, np.inf)))
    return high
