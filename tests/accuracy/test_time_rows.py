"""Predicted step times against the published ones in data/measurements: the bounds that the project claims.

Figures with each document held out come from `bench/fit_constants.py`, which takes minutes; here the constants have
seen the rows, so the bounds are closer. Each configuration counts once, the latest of a re-measured one.
"""

from pathlib import Path

import pytest

from meshwright.files.rows import read_rows
from meshwright.planner import accuracy
from meshwright.planner.configurations import Skipped
from meshwright.planner.validate import Judged, judge

DATA = Path(__file__).parents[2] / "data" / "measurements" / "measurements.csv"


@pytest.fixture(scope="module")
def rows() -> list[Judged | Skipped]:
    """Complete rows of trust A and B."""
    return [judge(row) for row in read_rows(DATA) if row.complete and row.trust in ("A", "B")]


@pytest.fixture(scope="module")
def judged(rows: list[Judged | Skipped]) -> list[Judged]:
    """Those that can be predicted."""
    return [one for one in rows if not isinstance(one, Skipped)]


def test_at_most_three_of_a_hundred_rows_are_skipped(rows: list[Judged | Skipped]) -> None:
    skipped = [one for one in rows if isinstance(one, Skipped)]
    assert len(skipped) <= 0.03 * len(rows), [(one.row.name, one.reason) for one in skipped]


def test_half_of_all_configurations_are_within_seven_percent(judged: list[Judged]) -> None:
    found = accuracy.errors(judged, accuracy.step_error)
    assert found.configurations > 600
    assert (found.median or 1) <= 0.065
    assert (found.p90 or 1) <= 0.22
    assert abs(found.bias or 0) <= 0.02


def test_rows_that_print_everything_are_predicted_better(judged: list[Judged]) -> None:
    found = accuracy.errors([one for one in judged if one.row.trust == "A"], accuracy.step_error)
    assert (found.median or 1) <= 0.06


def test_nine_of_ten_measured_steps_lie_in_the_stated_range(judged: list[Judged]) -> None:
    """80 to 95 % of them: of all, and of the plans of each kind."""
    timed = accuracy.once_each([one for one in judged if not one.extrapolated], accuracy.step_error)
    experts = [one for one in timed if one.plan.setup.proposal.arch.experts]
    for part in (timed, experts, [one for one in timed if one not in experts]):
        held = sum(bool(one.in_range) for one in part) / len(part)
        assert 0.8 <= held <= 0.97, held


@pytest.mark.parametrize("name", ["fp8", "bf16", "fp16", "mxfp8", "nvfp4"])
def test_no_precision_is_off_as_a_whole(judged: list[Judged], name: str) -> None:
    part = [one for one in judged if one.plan.setup.proposal.training.precision == name]
    found = accuracy.errors(part, accuracy.step_error)
    assert found.configurations >= 5
    assert abs(found.bias or 0) <= 0.1
