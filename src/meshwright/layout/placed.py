"""Cutting a chain of units into stages when several stages share a rank: the busiest rank decides."""

from itertools import chain, combinations, islice
from math import comb

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Cuts = NDArray[np.int64]

_EXACT = 200_000  # partitions that are simply all tried
_STEPS = (-4, -3, -2, -1, 1, 2, 3, 4)  # how far a local move shifts a boundary, in units


def best_cuts(
    prefix: Floats, time_on: Floats, holds: Floats, start: Cuts, memory: Floats | None, limit: Floats | None
) -> Cuts | None:
    """Boundaries (0, ..., n) of the stages that minimise the busiest rank, then the sum of squared rank loads.

    `prefix[i]` is the cost of units 0..i-1; `time_on[s, r]` is 1 / speed where rank r holds stage s, else 0; `holds`
    is the same without speeds. `memory` (a prefix sum of bytes) and `limit` (bytes a rank) bound every rank. `start`
    are the boundaries a local search begins with. None when no partition within the limit was found.
    """
    units, stages = len(prefix) - 1, len(holds)

    def keys(cuts: Cuts) -> Floats:
        """(memory beyond the limit, busiest rank, sum of squares) of each row of boundaries; rows are compared so."""
        loads = np.diff(prefix[cuts], axis=1) @ time_on
        over = np.zeros(len(cuts))
        if memory is not None and limit is not None:
            over = np.maximum(np.diff(memory[cuts], axis=1) @ holds - limit * (1 + 1e-9), 0.0).sum(axis=1)
        return np.stack([over, loads.max(axis=1), (loads**2).sum(axis=1)], axis=1)

    if comb(units - 1, stages - 1) <= _EXACT:
        best, key = start, keys(start[None])[0]
        inner = combinations(range(1, units), stages - 1)
        while block := list(islice(inner, 20_000)):
            cuts = np.empty((len(block), stages + 1), np.int64)
            cuts[:, 0], cuts[:, -1] = 0, units
            cuts[:, 1:-1] = np.fromiter(chain.from_iterable(block), np.int64).reshape(len(block), stages - 1)
            best, key = _better(best, key, cuts, keys(cuts))
    else:
        best, key = start, keys(start[None])[0]
        while True:
            cuts = _neighbours(best)
            found, found_key = _better(best, key, cuts, keys(cuts))
            if found is best:
                break
            best, key = found, found_key
    return best if key[0] <= 0 else None


def _better(best: Cuts, key: Floats, cuts: Cuts, keys: Floats) -> tuple[Cuts, Floats]:
    """The best of `best` and the rows of `cuts`; improvements within rounding do not count."""
    if not len(cuts):
        return best, key
    row = int(np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0]))[0])
    for mine, theirs in zip(key, keys[row], strict=True):
        if theirs < mine - 1e-12 * abs(mine):
            return cuts[row], keys[row]
        if theirs > mine + 1e-12 * abs(mine):
            break
    return best, key


def _neighbours(cuts: Cuts) -> Cuts:
    """All partitions that shift one boundary, or two, by a few units and leave every stage a unit."""
    inner = len(cuts) - 2
    single = [(b, d) for b in range(1, inner + 1) for d in _STEPS]
    moves = [[one] for one in single]
    moves += [[one, two] for one, two in combinations(single, 2) if one[0] != two[0] and abs(one[0] - two[0]) <= 8]
    rows = np.repeat(cuts[None], len(moves), axis=0)
    for row, move in enumerate(moves):
        for boundary, shift in move:
            rows[row, boundary] += shift
    return rows[(np.diff(rows, axis=1) >= 1).all(axis=1)]
