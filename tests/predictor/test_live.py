"""Live micro-batches: the remembered peaks are those of the whole schedule, for any bytes a stage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.layout.degrees import Schedule
from meshwright.layout.schedules import V_SHAPED, actions, default_placement, micro_batch_rule, peak_live
from meshwright.predictor.live import live, walk_through


@given(
    schedule=st.sampled_from(["1f1b", "gpipe", "interleaved", "looped-bfs", "zb-h1", "zbv", "dualpipev"]),
    pp=st.integers(2, 5),
    chunks=st.integers(2, 4),
    rounds=st.integers(1, 5),
    weights=st.lists(st.floats(0.1, 10), min_size=20, max_size=20),
)
def test_peaks_equal_a_walk_through_every_action(
    schedule: Schedule, pp: int, chunks: int, rounds: int, weights: list[float]
) -> None:
    vpp = 2 if schedule in V_SHAPED else chunks if schedule in ("interleaved", "looped-bfs") else 1
    m = rounds * pp
    if micro_batch_rule(schedule, pp, vpp, m) is not None:
        return
    placement = default_placement(schedule, pp, vpp)
    by_stage = weights[: len(placement)]
    walked = peak_live(actions(schedule, placement, m), by_stage)
    assert live(schedule, placement, m).peak(by_stage) == pytest.approx(walked)


PLACED = st.one_of(
    st.integers(2, 6).map(lambda pp: ("1f1b", tuple(range(pp)))),
    st.integers(2, 6).map(lambda pp: ("gpipe", tuple(range(pp)))),
    st.integers(2, 5).map(lambda pp: ("zbv", default_placement("zbv", pp, 2))),
    st.integers(2, 4).map(lambda pp: ("interleaved", default_placement("interleaved", pp, 2))),
    st.sampled_from([("1f1b", (0, 1, 0)), ("1f1b", (0, 1, 2, 1, 0)), ("zb-h1", (0, 0, 1))]),
)


@given(
    placed=PLACED,
    m=st.integers(1, 20),
    activations=st.lists(st.sampled_from([0.0, 0.01, 1.0, 7.0]), min_size=10, max_size=10),
    states=st.lists(st.floats(0, 10), min_size=6, max_size=6),
)
def test_the_floor_is_below_the_fullest_rank_of_any_partition(
    placed: tuple[Schedule, tuple[int, ...]], m: int, activations: list[float], states: list[float]
) -> None:
    schedule, placement = placed
    alive = live(schedule, placement, m)
    held, fixed = np.array(activations[: len(placement)]), np.array(states[: max(placement) + 1])
    fullest = float((alive.peak(held) + fixed).max())
    assert alive.mean_weights().floor(float(held.sum()), float(fixed.sum())) <= fullest + 1e-9


def test_the_floor_of_a_v_counts_only_what_a_rank_keeps_together() -> None:
    # Rank 1 of ZB-V on two ranks at times keeps many micro-batches of its first chunk and none of its second.
    alive, held = live("zbv", (0, 1, 1, 0), 6), [0.0, 0.0, 0.01, 1.0]
    assert alive.mean_weights().floor(sum(held), 0.0) <= alive.peak(held).max() == pytest.approx(1.0)


def test_without_a_pipeline_one_micro_batch_is_alive() -> None:
    assert live("gpipe", (0,), 64).peak([3.0]).tolist() == [3.0]


@given(
    schedule=st.sampled_from(["interleaved", "zb-h1", "zbv", "dualpipev"]),
    pp=st.integers(2, 6), chunks=st.integers(1, 5), m=st.integers(1, 30), data=st.data(),
)  # fmt: skip
def test_counted_moments_are_those_of_a_walk(
    schedule: Schedule, pp: int, chunks: int, m: int, data: st.DataObject
) -> None:
    placement = default_placement(schedule, pp, 2 if schedule in V_SHAPED else chunks)
    weights = data.draw(st.lists(st.floats(0.0, 10), min_size=len(placement), max_size=len(placement)))
    found, walked = live(schedule, placement, m), walk_through(schedule, placement, m)
    assert found.peak(weights) == pytest.approx(peak_live(actions(schedule, placement, m), weights))
    assert found.peak(weights) == pytest.approx(walked.peak(weights))
    assert found.mean_weights() == walked.mean_weights()
