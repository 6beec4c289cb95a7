"""Live micro-batches: the remembered peaks are those of the whole schedule, for any bytes a stage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.layout.degrees import Schedule
from meshwright.layout.schedules import V_SHAPED, actions, default_placement, micro_batch_rule, peak_live
from meshwright.predictor.live import live


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


@given(
    pp=st.integers(2, 6),
    m=st.integers(1, 20),
    activations=st.lists(st.floats(0, 10), min_size=6, max_size=6),
    states=st.lists(st.floats(0, 10), min_size=6, max_size=6),
    schedule=st.sampled_from(["1f1b", "gpipe"]),
)
def test_the_floor_is_below_the_fullest_rank_of_any_partition(
    pp: int, m: int, activations: list[float], states: list[float], schedule: Schedule
) -> None:
    alive = live(schedule, tuple(range(pp)), m)
    held, fixed = np.array(activations[:pp]), np.array(states[:pp])
    fullest = float((alive.peak(held) + fixed).max())
    assert alive.floor(float(held.sum()), float(fixed.sum())) <= fullest + 1e-9


def test_without_a_pipeline_one_micro_batch_is_alive() -> None:
    assert live("gpipe", (0,), 64).peak([3.0]).tolist() == [3.0]
