"""Two runs' repeats against each other: what moved, and whether it is beyond the spread."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_DRAWS = 19_999
_CHANCE = 0.01
_FEWEST = 4
"""Of four against four repeats 70 orders are possible: below that chance alone is more likely than 1 in 50."""


@dataclass(frozen=True, slots=True)
class Moved:
    """`change` is the second median over the first, less 1; `low` to `high` its 95 % range; `chance` how often a
    difference as large comes by chance, None with too few repeats to say."""

    first: float
    second: float
    change: float
    low: float
    high: float
    chance: float | None

    @property
    def significant(self) -> bool:
        """Beyond the spread?"""
        return self.chance is not None and self.chance <= _CHANCE


def moved(first: Sequence[float], second: Sequence[float]) -> Moved:
    """Compare repeats of one positive figure.

    The chance is that of a permutation test on the difference of means (Fisher), with random relabellings from a fixed
    seed; the range is the percentile bootstrap of the ratio of medians.
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    middle = float(np.median(a)), float(np.median(b))
    change = middle[1] / middle[0] - 1 if middle[0] else 0.0
    rng = np.random.default_rng(0)
    draws = np.median(rng.choice(b, (2000, len(b))), axis=1) / np.median(rng.choice(a, (2000, len(a))), axis=1) - 1
    low, high = np.quantile(draws, [0.025, 0.975]) if middle[0] else (change, change)
    if min(len(a), len(b)) < _FEWEST:
        return Moved(*middle, change, float(low), float(high), None)
    both = np.concatenate([a, b])
    apart = abs(a.mean() - b.mean())
    order = np.argsort(rng.random((_DRAWS, len(both))), axis=1)
    mixed = both[order]
    by_chance = np.abs(mixed[:, : len(a)].mean(axis=1) - mixed[:, len(a) :].mean(axis=1))
    chance = (1 + int((by_chance >= apart * (1 - 1e-12)).sum())) / (_DRAWS + 1)
    return Moved(*middle, change, float(low), float(high), chance)
