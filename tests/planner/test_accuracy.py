"""Errors computed by hand: quantiles, bias, coverage, and configurations that were measured again."""

import pytest

from meshwright.planner.accuracy import (
    assumptions,
    errors,
    errors_by,
    gpu_of,
    memory_error,
    once_each,
    parallelism_of,
    source_of,
    step_error,
    worst,
)

from .validate_rows import judged


def test_median_p90_bias_worst_and_coverage() -> None:
    # predicted 100 s each; errors +25 %, 0 %, -20 %, -50 %, +100 %
    rows = [judged(measured, 100.0, line=n) for n, measured in enumerate([80.0, 100.0, 125.0, 200.0, 50.0])]
    found = errors(rows, step_error)
    assert (found.rows, found.configurations) == (5, 5)
    # sizes in order: 0, 20, 25, 50, 100 %; the 90th percentile lies 0.6 of the way from the fourth to the fifth
    assert found.median == pytest.approx(0.25)
    assert found.p90 == pytest.approx(0.5 + 0.6 * 0.5)
    assert found.bias == pytest.approx(0.0)
    assert found.worst == pytest.approx(1.0)
    assert found.within == pytest.approx(1 / 5)  # only 100 s lies in 90 to 110 s


def test_bias_is_positive_where_too_much_is_predicted() -> None:
    found = errors([judged(100.0, 110.0), judged(100.0, 130.0, line=3)], step_error)
    assert found.bias == pytest.approx(0.2)


def test_without_a_measurement_there_is_no_error() -> None:
    found = errors([judged(None, 1.0)], step_error)
    assert (found.rows, found.configurations, found.median, found.within) == (0, 0, None, None)


def test_of_a_configuration_measured_again_the_latest_counts() -> None:
    rows = [
        judged(100.0, 200.0, line=2, config_group="one", date="26.04"),
        judged(100.0, 110.0, line=3, config_group="one", date="26.06"),
        judged(100.0, 150.0, line=4, config_group="one", date="2025-11"),
        judged(100.0, 130.0, line=5, config_group="two", date="26.04"),
    ]
    found = errors(rows, step_error)
    assert (found.rows, found.configurations) == (4, 2)
    assert found.median == pytest.approx((0.1 + 0.3) / 2)


def test_of_the_same_date_the_middle_one_counts() -> None:
    rows = [judged(100.0, value, line=n, config_group="one") for n, value in enumerate([90.0, 105.0, 300.0])]
    assert [one.step_error for one in once_each(rows, step_error)] == [pytest.approx(0.05)]
    assert [one.step_error for one in once_each(rows[:2], step_error)] == [pytest.approx(-0.1)]  # the smaller of two


def test_a_later_container_of_a_month_counts() -> None:
    rows = [
        judged(100.0, 110.0, config_group="g", date="26.04.01"),
        judged(100.0, 200.0, config_group="g", date="26.04"),
    ]
    assert errors(rows, step_error).median == pytest.approx(0.1)


def test_rows_without_a_group_are_configurations_of_their_own() -> None:
    assert errors([judged(1.0, 1.0, line=n) for n in range(3)], step_error).configurations == 3


def test_extrapolated_rows_have_no_step_error() -> None:
    assert judged(1.0, 2.0, id="vtrains-001").step_error is None
    assert judged(1.0, 2.0, id="vtrainm-001").step_error == pytest.approx(1.0)


def test_memory_is_compared_in_the_readings_that_gb_may_have() -> None:
    exact = judged(1.0, 1.0, peak_memory_gib=10.0, peak_memory_stated="10 GiB max allocated")
    unsure = judged(1.0, 1.0, peak_memory_gib=10.0, peak_memory_stated="10 GB max allocated")
    assert exact.memory_error == pytest.approx(exact.peak_gib / 10 - 1)
    nearest = min(max(unsure.peak_gib, 10 * 1e9 / 2**30), 10)
    assert unsure.memory_error == pytest.approx(unsure.peak_gib / nearest - 1)
    found = errors([exact], memory_error)
    assert found.median == pytest.approx(abs(exact.peak_gib / 10 - 1))
    assert found.within is None


def test_by_parts_the_largest_first() -> None:
    rows = [judged(1.0, 1.1, line=2, source="b"), *(judged(1.0, 1.3, line=n, source="a") for n in (3, 4))]
    found = errors_by([*rows, judged(None, 1.0, source="c")], source_of, step_error)
    assert list(found) == ["a", "b"]
    assert found["a"].median == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("github:someone/something docs/page.md@abc123, section 1", "someone/something"),
        ("Zero Bubble arXiv 2401.10241 Tables 3 and 4 (read twice)", "Zero Bubble arXiv 2401.10241"),
        ("our cluster, March", "our cluster"), ("", "not stated"),
    ],
)  # fmt: skip
def test_sources(text: str, name: str) -> None:
    assert source_of(judged(1.0, 1.0, source=text)) == name


def test_kinds_of_parallelism_and_devices() -> None:
    assert parallelism_of(judged(1.0, 1.0)) == "data"
    assert parallelism_of(judged(1.0, 1.0, zero_stage=3)) == "sharded data"
    assert parallelism_of(judged(1.0, 1.0, dp=2, tp=2, pp=2)) == "data + tensor + pipeline"
    assert parallelism_of(judged(1.0, 1.0, dp=1, gpus=1)) == "one device"
    assert gpu_of(judged(1.0, 1.0)) == "A100-80GB-SXM"


def test_assumptions_are_counted_and_the_worst_come_first() -> None:
    rows = [judged(1.0, 1.0 + n / 10, line=n, vocab=None if n else 51200) for n in range(3)]
    assert assumptions(rows)["vocab 51200"] == 2
    assert [one.row.line for one in worst(rows, step_error, 2)] == [2, 1]
