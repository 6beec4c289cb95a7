"""Why a plan wins, and what each choice of the worked example costs."""

from dataclasses import replace

import pytest

from meshwright.basics.errors import InputError
from meshwright.files.setup import Setup
from meshwright.layout.proposal import Wanted
from meshwright.planner.candidates import Bench
from meshwright.planner.explain import cost_of_choices, why
from meshwright.planner.rank import plan, ranked


def test_differences_of_terms_sum_to_the_difference_of_steps(worked_example: Setup) -> None:
    plans = plan(worked_example).plans
    first, last = plans[0].prediction, plans[-1].prediction
    assert first is not None
    assert last is not None
    terms = why(plans[0], plans[-1])
    assert sum(term.difference_s for term in terms) == pytest.approx(last.step_time_s - first.step_time_s)
    assert [abs(term.difference_s) for term in terms] == sorted((abs(t.difference_s) for t in terms), reverse=True)


def test_sentences_name_what_made_a_plan_lose(worked_example: Setup) -> None:
    found = plan(worked_example)
    assert "fastest" in found.why[0]
    assert all("than the first" in text or "less plain" in text for text in found.why[1:])


def test_the_choices_of_the_worked_example_have_a_price(worked_example: Setup) -> None:
    """Four stages, gradient checkpointing and micro-batch 16 each cost time on a model that fits without them."""
    costs = {one.field: one for one in cost_of_choices(worked_example, {"pp": 4, "recompute": "full", "dp": 2})}
    assert costs["recompute"].cost == pytest.approx(0.30, abs=0.08)  # a third of the compute, repeated
    assert costs["pp"].cost is not None
    assert costs["pp"].cost > 0.02
    assert "bubble" in costs["pp"].reason
    assert all(one.step_s is not None and one.step_s >= one.free_step_s for one in costs.values())


def test_an_impossible_choice_says_why(worked_example: Setup) -> None:
    (cost,) = cost_of_choices(worked_example, {"dp": 3})
    assert cost.step_s is None
    assert cost.cost is None
    assert cost.reason


def test_an_unknown_choice_is_refused(worked_example: Setup) -> None:
    with pytest.raises(InputError, match="recompute"):
        cost_of_choices(worked_example, {"recomput": "full"})


def test_searches_that_share_a_bench_find_what_each_finds_alone(worked_example: Setup) -> None:
    chosen: dict[str, object] = {"dp": 2, "pp": 4, "recompute": "full", "schedule": "gpipe", "overlap": False}
    bench = Bench(worked_example)
    free = ranked(bench).plans[0]
    for cost in cost_of_choices(worked_example, chosen, free, bench):
        wanted = replace(Wanted(), **{cost.field: cost.value})  # type: ignore[arg-type]
        alone = plan(replace(worked_example, proposal=replace(worked_example.proposal, wanted=wanted)), top=1).plans[0]
        assert cost.plan is not None
        assert (cost.plan.layout, cost.plan.batch, cost.plan.prediction) == (
            alone.layout, alone.batch, alone.prediction,
        )  # fmt: skip
