"""Three sets of eight ranks over fifty steps: one slow node, slowness that wanders, and none."""

import numpy as np
import pytest

from meshwright.diagnosis.stragglers import judge_times


def test_a_slow_node_is_named_with_its_excess_and_what_it_costs() -> None:
    rng = np.random.default_rng(1)
    times = 0.1 + 0.002 * rng.uniform(-1, 1, (50, 8))
    times[:, 6] = 0.118
    verdict = judge_times(times)
    assert verdict.kind == "persistent"
    assert verdict.column == 6
    assert verdict.excess == pytest.approx(0.18, abs=0.01)
    assert verdict.job_loss == pytest.approx(0.15, abs=0.01)
    assert verdict.persistence >= 0.9


def test_slowness_that_wanders_has_no_culprit() -> None:
    rng = np.random.default_rng(2)
    times = 0.1 + 0.002 * rng.uniform(-1, 1, (50, 8))
    times[np.arange(50), rng.integers(0, 8, 50)] = 0.118
    verdict = judge_times(times)
    assert verdict.kind == "jitter"
    assert verdict.column is None
    assert verdict.job_loss == pytest.approx(0.15, abs=0.01)


def test_a_spread_within_the_limit_is_healthy() -> None:
    times = 0.1 + 0.005 * np.random.default_rng(3).uniform(-1, 1, (50, 8))
    assert judge_times(times).kind == "none"
    assert judge_times(times[:, :1]).kind == "none"
    assert judge_times(times[:0]).kind == "none"
