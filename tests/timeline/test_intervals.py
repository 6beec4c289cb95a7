"""Interval algebra against a boolean array, one cell a nanosecond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.timeline.intervals import clip, intersect, subtract, total, union

SPAN = 60
pairs = st.lists(st.tuples(st.integers(0, SPAN), st.integers(0, SPAN)).map(lambda p: (min(p), max(p))), max_size=12)


def arrays(spans: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(spans, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def cells(spans: list[tuple[int, int]]) -> np.ndarray:
    covered = np.zeros(SPAN, np.bool_)
    for first, last in spans:
        covered[first:last] = True
    return covered


def check(found: tuple[np.ndarray, np.ndarray], wanted: np.ndarray) -> None:
    starts, ends = found
    assert np.array_equal(cells(list(zip(starts.tolist(), ends.tolist(), strict=True))), wanted)
    assert np.all(ends > starts)
    assert np.all(starts[1:] > ends[:-1])  # sorted, disjoint and nothing left to join


@given(pairs)
def test_union_and_total(spans: list[tuple[int, int]]) -> None:
    check(union(*arrays(spans)), cells(spans))
    assert total(*arrays(spans)) == cells(spans).sum()


@given(pairs, pairs)
def test_intersect_and_subtract(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    check(intersect(arrays(a), arrays(b)), cells(a) & cells(b))
    check(subtract(arrays(a), arrays(b)), cells(a) & ~cells(b))
    both = total(*intersect(arrays(a), arrays(b)))
    assert total(*subtract(arrays(a), arrays(b))) + both == total(*arrays(a))


@given(pairs, st.integers(0, SPAN), st.integers(0, SPAN))
def test_clip(spans: list[tuple[int, int]], low: int, high: int) -> None:
    wanted = cells(spans)
    wanted[:low] = False
    wanted[high:] = False
    check(clip(*arrays(spans), low, high), wanted)


def test_many_streams_of_a_long_trace() -> None:
    rng = np.random.default_rng(0)
    starts = rng.integers(0, 10**12, 200_000)
    ends = starts + rng.integers(0, 10**6, 200_000)
    merged = union(starts, ends)
    assert total(*merged) == total(starts, ends)
    assert total(*subtract((starts, ends), merged)) == 0
