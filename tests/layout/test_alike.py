"""Stages that are all alike: the quick cuts are those of the general balance."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.layout.alike import alike_cuts


def by_trying(costs: list[int], stages: int) -> tuple[int, int, tuple[int, ...]]:
    """(largest, sum of squares, cuts) of the best of all partitions, the latest cuts among equals."""
    n, found = len(costs), []
    for inner in combinations(range(1, n), stages - 1):
        cuts = (0, *inner, n)
        sums = [sum(costs[a:b]) for a, b in pairwise(cuts)]
        found.append((max(sums), sum(s * s for s in sums), tuple(-cut for cut in reversed(cuts)), cuts))
    largest, squares, _, cuts = min(found)
    return largest, squares, cuts


@given(st.lists(st.integers(1, 9), min_size=1, max_size=10), st.data())
def test_equals_trying_all(costs: list[int], data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, len(costs)))
    prefix = np.concatenate([[0.0], np.cumsum(costs)])
    assert tuple(alike_cuts(prefix, stages).tolist()) == by_trying(costs, stages)[2]


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=9), st.data())
def test_no_partition_has_a_smaller_largest_stage(costs: list[float], data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, len(costs)))
    cuts = alike_cuts(np.concatenate([[0.0], np.cumsum(costs)]), stages).tolist()
    assert len(cuts) == stages + 1
    assert all(a < b for a, b in pairwise(cuts))
    largest = max(sum(costs[a:b]) for a, b in pairwise(cuts))
    best = min(
        max(sum(costs[a:b]) for a, b in zip((0, *inner), (*inner, len(costs)), strict=True))
        for inner in combinations(range(1, len(costs)), stages - 1)
    )
    assert largest == pytest.approx(best, rel=1e-6)
