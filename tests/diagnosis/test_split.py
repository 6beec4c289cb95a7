"""The four-way split on a timeline whose answer is known by hand, and against a brute-force count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.diagnosis.split import rank_splits, split_window, windows_of
from meshwright.timeline.columns import Kind, Timeline, build

Row = tuple[int, int, int, Kind]


def line(rows: list[Row], steps: list[int] | None = None, scale: float = 1.0) -> Timeline:
    rank, start, end, kind = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    columns = {"rank": rank, "start": start, "end": end, "kind": kind, "name": [0] * len(rows)}
    if steps:
        columns["step"] = steps
    return build(columns, names=("x",), mode="measured" if scale == 1 else "dilated", time_scale=scale)


def test_overlaps_count_once() -> None:
    rows = [
        (0, 0, 10, Kind.COMPUTE), (0, 5, 12, Kind.COMPUTE),  # two streams
        (0, 8, 20, Kind.COMMUNICATION),  # 4 covered, 8 exposed
        (0, 18, 25, Kind.COPY), (0, 30, 40, Kind.UNCLASSIFIED), (0, 0, 50, Kind.HOST),
    ]  # fmt: skip
    split = split_window(line(rows), 0, 0, 50)
    assert (split.compute, split.exposed_comm, split.exposed_copy, split.idle) == (22, 8, 5, 15)
    assert split.comm == 12
    assert split.unclassified == 10


spans = st.tuples(
    st.just(0), st.integers(0, 60), st.integers(0, 60),
    st.sampled_from([Kind.COMPUTE, Kind.COMMUNICATION, Kind.COPY, Kind.HOST]),
).map(lambda r: (r[0], min(r[1:3]), max(r[1:3]), r[3]))  # fmt: skip


@given(st.lists(spans, max_size=10), st.integers(0, 30), st.integers(31, 60))
def test_split_equals_a_count_of_nanoseconds(rows: list[Row], low: int, high: int) -> None:
    split = split_window(line(rows), 0, low, high)
    cells = {kind: np.zeros(61, np.bool_) for kind in Kind}
    for _, start, end, kind in rows:
        cells[kind][start:end] = True
    c, n, m = (cells[kind][low:high] for kind in (Kind.COMPUTE, Kind.COMMUNICATION, Kind.COPY))
    assert split.compute == c.sum()
    assert split.exposed_comm == (n & ~c).sum()
    assert split.exposed_copy == (m & ~c & ~n).sum()
    assert split.idle == (~(c | n | m)).sum()


def test_windows_are_common_to_all_ranks_and_times_are_device_seconds() -> None:
    second = 10**9
    rows = [
        (0, 0, 4 * second, Kind.COMPUTE),
        (1, second, 8 * second, Kind.COMPUTE),
        (0, 9 * second, 10 * second, Kind.COMPUTE),
    ]
    source = line(rows, steps=[3, 3, -1], scale=4.0)
    (window,) = windows_of(source)
    assert (window.step, window.length) == (3, 8 * second)
    first, second_rank = rank_splits(source, [window])
    assert first.window_s == second_rank.window_s == 2.0
    assert first.idle_s == pytest.approx(1.0)
    assert second_rank.compute_s == pytest.approx(7 / 4)
    assert len(windows_of(line(rows))) == 1
