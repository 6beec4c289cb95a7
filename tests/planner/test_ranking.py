"""Kendall's tau and regret, computed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.planner.ranking import Group, groups, kendall_tau, ranking, ranking_by_place
from meshwright.planner.validate import Judged

from .validate_rows import judged

LAYOUTS = [{"dp": 8}, {"dp": 4, "tp": 2}, {"dp": 2, "tp": 4}, {"dp": 4, "pp": 2}, {"dp": 2, "tp": 2, "pp": 2}]


def job(measured: list[float], predicted: list[float], **values: object) -> list[Judged]:
    """A row a layout."""
    pairs = zip(LAYOUTS, measured, predicted, strict=False)
    return [judged(m, p, line=n, **{**layout, **values}) for n, (layout, m, p) in enumerate(pairs)]


def only(rows: list[Judged]) -> Group:
    (group,) = groups(rows)
    return group


def test_tau_counts_pairs() -> None:
    # of the six pairs of 1, 2, 3, 4 against 1, 3, 2, 4 five are in order and one is not: (5 - 1) / 6
    assert kendall_tau([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(4 / 6)
    assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1
    # tau-b: of three pairs one is tied in the second: 2 / sqrt(3 · 2)
    assert kendall_tau([1, 2, 3], [1, 1, 2]) == pytest.approx(2 / 6**0.5)
    assert kendall_tau([1, 2, 3], [5, 5, 5]) == 0


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=20, unique=True), st.floats(0.1, 10))
def test_tau_is_one_for_the_same_order_and_changes_sign_with_it(values: list[int], scale: float) -> None:
    same = [scale * value for value in values]
    assert kendall_tau(values, same) == pytest.approx(1)
    assert kendall_tau(values, [-value for value in same]) == pytest.approx(-1)


def test_regret_is_what_the_first_choice_costs() -> None:
    group = only(job([10.0, 11.5, 12.0, 14.0], [5.0, 4.0, 6.0, 7.0]))
    assert group.regret == pytest.approx(0.15)  # the second is predicted fastest and takes 11.5 s, not 10 s
    assert group.first.measured_s == 11.5
    assert group.best.measured_s == 10.0
    assert group.tau == pytest.approx(4 / 6)


@pytest.mark.parametrize(("chosen", "regret"), [(10.2, 0.0), (10.21, 0.021), (10.0, 0.0)])
def test_within_two_percent_of_the_best_counts_as_the_best(chosen: float, regret: float) -> None:
    assert only(job([10.0, chosen, 12.0, 14.0], [5.0, 4.0, 6.0, 7.0])).regret == pytest.approx(regret)


def test_measured_again_a_layout_counts_once_by_its_median() -> None:
    rows = job([10.0, 12.0, 12.5, 14.0], [5.0, 4.0, 6.0, 7.0])
    again = [judged(float(value), 4.0, line=10 + value, **LAYOUTS[1]) for value in (11, 30)]
    group = only([*rows, *again])
    assert len(group.choices) == 4
    assert group.first.measured_s == 12.0  # the middle of 11, 12 and 30


def test_four_layouts_make_a_group_and_three_do_not() -> None:
    assert groups(job([1, 2, 3], [1, 2, 3])) == ()
    repeated = [*job([1, 2, 3], [1, 2, 3]), judged(4.0, 4.0, **LAYOUTS[0])]
    assert groups(repeated) == ()
    assert len(groups(job([1, 2, 3, 4], [1, 2, 3, 4]))) == 1


@pytest.mark.parametrize(
    "other",
    [{"source": "another log"}, {"model_name": "other"}, {"layers": 16}, {"seq_len": 1024}, {"global_batch": 128},
     {"precision": "fp16"}, {"gpu": "H100-80GB-SXM"}, {"task": "lora"}],
)  # fmt: skip
def test_what_groups_share(other: dict[str, object]) -> None:
    rows = job([1, 2, 3, 4], [1, 2, 3, 4])
    changed = judged(4.0, 4.0, **{**LAYOUTS[3], **other})
    assert groups([*rows[:3], changed]) == ()


def test_rows_that_do_not_state_the_batch_are_no_choices() -> None:
    rows = job([1, 2, 3, 4], [1, 2, 3, 4], global_batch=None)
    assert groups(rows) == ()


def test_of_equal_predictions_the_slowest_counts() -> None:
    assert only(job([10, 12, 13, 14], [5, 5, 6, 7])).regret == pytest.approx(0.2)


def test_over_groups() -> None:
    found = groups([
        *job([10, 12, 13, 14], [5, 4, 6, 7], source="a"), *job([10, 12, 13, 14], [1, 2, 3, 4], source="b"),
        *job([10, 12, 13, 14], [4, 3, 2, 1], source="c"),
    ])  # fmt: skip
    assert [group.regret for group in found] == pytest.approx([0.4, 0.2, 0.0])
    whole = ranking(found)
    assert (whole.groups, whole.layouts) == (3, 12)
    assert whole.mean_regret == pytest.approx(0.2)
    assert whole.worst_regret == pytest.approx(0.4)
    assert whole.best_found == pytest.approx(1 / 3)
    assert whole.tau == pytest.approx((4 / 6 + 1 - 1) / 3)
    assert ranking([]).mean_regret is None


def test_by_place() -> None:
    wide = {"gpus": 16, "dp": 2}
    several = [
        judged(float(n + 1), float(n + 1), line=n, **{**wide, "tp": tp, "pp": pp})
        for n, (tp, pp) in enumerate([(8, 1), (4, 2), (2, 4), (1, 8)])
    ]
    extrapolated = job([1, 2, 3, 4], [1, 2, 3, 4], source="x", id="vtrains-1")
    found = ranking_by_place(groups([*job([1, 2, 3, 4], [1, 2, 3, 4]), *several, *extrapolated]))
    assert {place: one.groups for place, one in found.items()} == {
        "one node": 1, "several nodes": 1, "extrapolated": 1,
    }  # fmt: skip
