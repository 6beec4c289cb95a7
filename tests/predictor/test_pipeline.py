"""The event simulator against the closed forms of the schedules' papers and against hand-made pipelines."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.layout.bubble import ideal_idle, micro_batches_for_idle
from meshwright.layout.degrees import SCHEDULES, Schedule
from meshwright.layout.pipeline_action import PipelineAction
from meshwright.layout.schedules import V_SHAPED, actions, default_placement
from meshwright.predictor.pipeline import simulate
from meshwright.timeline.columns import Action, Kind
from meshwright.timeline.intervals import total

GRID = [(p, m) for p in (1, 2, 4, 7) for m in (1, 3, 8, 21)]


@pytest.mark.parametrize(("p", "m"), GRID)
def test_gpipe_and_1f1b_idle_p_minus_1_slots(p: int, m: int) -> None:
    for schedule in ("gpipe", "1f1b"):
        step = simulate(actions(schedule, range(p), m), range(p), [1.0] * p, [2.0] * p)
        assert step.makespan_s == pytest.approx(3.0 * (m + p - 1))
        assert step.idle_fraction == pytest.approx([(p - 1) / (m + p - 1)] * p)


@pytest.mark.parametrize(("p", "v", "rounds"), [(2, 2, 1), (4, 2, 2), (4, 3, 3), (8, 4, 2)])
def test_interleaving_divides_the_bubble_by_the_chunks(p: int, v: int, rounds: int) -> None:
    placement, m = default_placement("interleaved", p, v), p * rounds
    step = simulate(actions("interleaved", placement, m), placement, [1.0] * (p * v), [2.0] * (p * v))
    assert step.bubble_fraction == pytest.approx((p - 1) / (v * m + p - 1))


@pytest.mark.parametrize(("p", "m"), [(2, 8), (4, 12), (8, 32)])
def test_zero_bubble_schedules_idle_as_their_paper_says(p: int, m: int) -> None:
    # Qi et al. 2024, table 2, F = I = W = 1: ZB-H1 idles (p - 1)(F + I - W), ZB-V of 1F1B's memory p - 1 at most
    step = simulate(actions("zb-h1", range(p), m), range(p), [1.0] * p, [2.0] * p)
    assert step.makespan_s - 3.0 * m == pytest.approx(p - 1)
    placement = default_placement("zbv", p, 2)
    folded = simulate(actions("zbv", placement, m), placement, [0.5] * 2 * p, [1.0] * 2 * p)
    assert folded.makespan_s - 3.0 * m < p - 1
    assert folded.bubble_fraction < step.bubble_fraction


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("p", "m"), [(2, 4), (3, 9), (4, 8), (4, 16), (8, 16)])
def test_the_closed_forms_are_what_the_orders_idle(schedule: Schedule, p: int, m: int) -> None:
    vpp = 1 if schedule in ("gpipe", "1f1b", "zb-h1") else 2
    placement = default_placement(schedule, p, vpp)
    step = simulate(actions(schedule, placement, m), placement, [1.0] * p * vpp, [2.0] * p * vpp)
    assert ideal_idle(schedule, p, vpp, m) == pytest.approx(step.bubble_fraction)


def test_a_v_that_is_not_full_has_no_closed_form() -> None:
    assert ideal_idle("zbv", 4, 2, 6) is None
    assert ideal_idle("dualpipev", 4, 2, 7) is None
    assert micro_batches_for_idle("zbv", 4, 2, 0.2) == 8


def test_one_slow_stage_of_four() -> None:
    # 1, 1, 1 and 5 layers of 10 ms forward and 20 ms backward, 8 micro-batches: 8 · 0.15 + 3 · 0.03 s
    layers = [1, 1, 1, 5]
    orders = actions("1f1b", range(4), 8)
    slow = simulate(orders, range(4), [0.01 * n for n in layers], [0.02 * n for n in layers])
    even = simulate(orders, range(4), [0.02] * 4, [0.04] * 4)
    assert slow.makespan_s == pytest.approx(1.29)
    assert even.makespan_s == pytest.approx(0.66)
    assert even.idle_fraction == pytest.approx([3 / 11] * 4)
    assert [round(idle, 2) for idle in slow.idle_fraction] == [0.81, 0.81, 0.81, 0.07]


def test_hops_and_tails_add_up() -> None:
    orders = actions("1f1b", range(3), 1)
    step = simulate(
        orders, range(3), [1.0] * 3, [2.0] * 3, hop_s=[0.25, 0.5], exchange_s=[0.0, 0.0, 9.0], optimizer_s=1.0
    )
    assert step.makespan_s == pytest.approx(max(9 + 2 * 0.75 + 1, 3 + 0.75 + 2 + 9 + 1))
    assert step.end[0][-1] == pytest.approx(9 + 1.5)
    assert [(h[0], h[1]) for h in step.hops] == [(0, 1), (1, 2), (1, 0), (2, 1)]
    # a stage on the same rank as the one before needs no transfer
    placement = (0, 0, 1)
    near = simulate(actions("1f1b", placement, 1), placement, [1.0] * 3, [2.0] * 3, hop_s=0.5)
    assert near.makespan_s == pytest.approx(9 + 2 * 0.5)


def test_orders_that_wait_for_each_other_are_refused() -> None:
    action = PipelineAction
    orders = [[action(0, "B", 0), action(0, "F", 0)], [action(1, "F", 0), action(1, "B", 0)]]
    with pytest.raises(ValueError, match="rank 0 waits to run 0B0"):
        simulate(orders, (0, 1), [1.0] * 2, [1.0] * 2)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), schedule=st.sampled_from(SCHEDULES), p=st.integers(1, 4), m=st.integers(1, 9))
def test_a_step_is_a_valid_run(data: st.DataObject, schedule: Schedule, p: int, m: int) -> None:
    if schedule in V_SHAPED:
        placement = default_placement(schedule, p, 2)
    else:
        more = data.draw(st.lists(st.integers(0, p - 1), max_size=4))
        placement = tuple(data.draw(st.permutations([*range(p), *more])))
    costs = st.lists(st.floats(0.1, 3.0), min_size=len(placement), max_size=len(placement))
    forward, backward = data.draw(costs), data.draw(costs)
    step = simulate(actions(schedule, placement, m), placement, forward, backward, hop_s=0.1)
    when = {
        tuple(action): (start, end)
        for order, starts, ends in zip(step.orders, step.start, step.end, strict=True)
        for action, start, end in zip(order, starts, ends, strict=True)
    }
    for (stage, kind, i), (start, _) in when.items():
        before = [(stage - 1, "F", i)] if kind == "F" else [(stage + 1, "B", i), (stage + 1, "I", i)]
        for need in before if kind != "W" else [(stage, "I", i)]:
            if need in when:
                hop = 0.1 if placement[need[0]] != placement[stage] else 0.0
                assert start >= when[need][1] + hop - 1e-9
    # no rank beats its own work, and the step is no longer than all work and transfers one after the other
    assert step.makespan_s >= max(step.busy_s) - 1e-9
    assert step.makespan_s <= sum(step.busy_s) + 0.1 * len(step.hops) + 1e-9
    line = step.timeline()
    for rank, busy in enumerate(step.busy_s):
        mine = (line.rank == rank) & (line.kind == Kind.COMPUTE)
        assert total(line.start[mine], line.end[mine]) == pytest.approx(busy * 1e9, abs=2.0 * mine.sum())


def test_timeline_columns() -> None:
    step = simulate(
        actions("zb-h1", (0, 1), 2), (0, 1), [1.0] * 2, [2.0] * 2, hop_s=0.5, exchange_s=0.25, optimizer_s=0.125
    )
    line = step.timeline(step=7)
    assert line.mode == "predicted"
    assert set(line.step.tolist()) == {7}
    weights = line.select((line.action == Action.WEIGHT_BACKWARD) & (line.rank == 1))
    assert weights.stage.tolist() == [1, 1]
    assert weights.micro_batch.tolist() == [0, 1]
    assert np.all(weights.end - weights.start == 1_000_000_000)
    tail = line.select((line.action == Action.OPTIMIZER) & (line.rank == 0))
    assert tail.end.max() == round(step.makespan_s * 1e9)
    transfers = line.select(line.kind == Kind.COMMUNICATION)
    assert (transfers.stage >= 0).sum() == len(step.hops) == 4
