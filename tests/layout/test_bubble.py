"""Idle shares: the closed forms of the literature, and schedules played through where there is none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.layout.bubble import ideal_idle, micro_batches_for_idle, own_idle
from meshwright.layout.degrees import Schedule


@pytest.mark.parametrize(("schedule", "vpp", "pp", "m", "idle"), [
    ("1f1b", 1, 8, 1, 7 / 8), ("gpipe", 1, 6, 3, 5 / 8), ("1f1b", 1, 4, 4, 3 / 7),
    ("interleaved", 2, 4, 8, 3 / 19),  # Narayanan et al. 2021: (p - 1) / v of the time without interleaving
    ("zb-h1", 1, 4, 4, 3 / 15),  # Qi et al. 2024, F = I = W
])  # fmt: skip
def test_closed_forms(schedule: Schedule, vpp: int, pp: int, m: int, idle: float) -> None:
    assert ideal_idle(schedule, pp, vpp, m) == pytest.approx(idle)
    assert own_idle(schedule, pp, vpp, m) == pytest.approx(idle)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["interleaved", "looped-bfs", "zbv", "dualpipev", "zb-h1"]), st.integers(2, 6), st.integers(1, 4)
)
def test_fewer_micro_batches_than_stages_idle_more(schedule: Schedule, pp: int, m: int) -> None:
    """One micro-batch goes up and down the pipeline alone, whatever the schedule: of p ranks one works at a time, but
    for weight gradients that are split off. More micro-batches never idle more."""
    vpp = 1 if schedule == "zb-h1" else 2
    alone, some = own_idle(schedule, pp, vpp, 1), own_idle(schedule, pp, vpp, m)
    assert alone is not None
    assert some is not None
    assert some <= alone + 1e-9
    assert alone <= 1 - 1 / pp + 1e-9
    if schedule in ("interleaved", "looped-bfs"):
        assert alone == pytest.approx(1 - 1 / pp)
        assert some > (pp - 1) / (vpp * max(m, pp) + pp - 1) - 1e-9  # the closed form of a whole round is the least


def test_micro_batches_for_a_share() -> None:
    assert micro_batches_for_idle("1f1b", 4, 1, 0.15) == 20  # 3 / 23 = 13 %; 16 would give 15.8 %
    assert micro_batches_for_idle("zb-h1", 4, 1, 0.15) == 8
