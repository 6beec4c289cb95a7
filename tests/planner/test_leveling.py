"""Units move off the fullest pipeline rank until no move helps."""

from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.files.plan import Plan
from meshwright.planner.leveling import cut_by_time, level, totals

from .memory_plans import pipeline, seven_b


def fullest(plan: Plan) -> int:
    return max(totals(plan.setup, plan.layout, plan.batch))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([2, 4, 8]), st.sampled_from(["1f1b", "gpipe"]), st.sampled_from([1, 4]))
def test_never_fuller_and_every_unit_once_in_order(stages: int, schedule: str, micro: int) -> None:
    plan = pipeline(stages, schedule=schedule, micro_batch=micro)
    leveled = level(plan.setup, plan.layout, plan.batch)
    assert max(totals(plan.setup, leveled, plan.batch)) <= fullest(plan)
    assert sum(leveled.stages, ()) == sum(plan.layout.stages, ())
    assert all(leveled.stages)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_no_cut_between_layers_is_better_by_exhaustive_search(schedule: str) -> None:
    plan = pipeline(4, layers=8, schedule=schedule, runnable_by="megatron")  # cuts between whole layers only
    pieces = ["embed", *[f"layers.{n}" for n in range(8)], "head"]
    names = {p: [p] if not p.startswith("layers") else [f"{p}.attn", f"{p}.ffn"] for p in pieces}
    best = None
    for cuts in combinations(range(1, len(pieces)), 3):
        edges = [0, *cuts, len(pieces)]
        stages = tuple(tuple(n for p in pieces[a:b] for n in names[p]) for a, b in pairwise(edges))
        needs = max(totals(plan.setup, replace(plan.layout, stages=stages), plan.batch))
        best = needs if best is None else min(best, needs)
    assert max(totals(plan.setup, level(plan.setup, plan.layout, plan.batch), plan.batch)) == best


def test_it_stops_once_it_is_level_enough() -> None:
    plan = pipeline(8)
    some = level(plan.setup, plan.layout, plan.batch, enough=0.98 * fullest(plan))
    most = level(plan.setup, plan.layout, plan.batch)
    moved = [max(totals(plan.setup, layout, plan.batch)) for layout in (some, most)]
    assert moved[1] <= moved[0] <= 0.98 * fullest(plan)


def test_one_stage_stays_as_it_is() -> None:
    plan = seven_b()
    assert level(plan.setup, plan.layout, plan.batch) == plan.layout


def test_more_stages_than_units_are_refused() -> None:
    plan = pipeline(2, layers=2)
    with pytest.raises(ValueError, match="more than the model has units"):
        cut_by_time(plan.setup, replace(plan.layout, pp=16), plan.batch)
