"""Full recompute of no more layers than memory asks for."""

from dataclasses import replace

from meshwright.files.plan import Plan
from meshwright.layout.proposal import proposal_of
from meshwright.layout.recomputed import recomputed_units
from meshwright.planner.candidates import Bench
from meshwright.predictor.costs import step_costs
from meshwright.predictor.memory import memory_of
from meshwright.predictor.mixed import stages_of
from meshwright.predictor.step import pipeline_ends, prediction_of


def lighter(bench: Bench, plan: Plan) -> Plan | None:
    """The plan with only the first k layers of each stage recomputed, for the least k that fits, where that is faster;
    None where it is not, the plan recomputes otherwise, the job fixes k, or the framework has no such mode. The stages
    stay as they are: they were cut for full recompute."""
    setup, layout = bench.setup, plan.layout
    if layout.recompute != "full" or layout.recompute_layers is not None or setup.proposal.wanted.recompute is not None:
        return None
    most = max(len({unit.split(".")[1] for unit in stage if unit.startswith("layers.")}) for stage in layout.stages)
    least, enough = 1, most  # all of them fit
    if most < 2 or bench.refuse(replace(layout, recompute_layers=1)) is not None:
        return None
    while least < enough:
        k = (least + enough) // 2
        if _fits(bench, plan, k):
            enough = k
        else:
            least = k + 1
    lean = replace(layout, recompute_layers=enough)
    if enough == most or recomputed_units(lean) == recomputed_units(layout):
        return None
    stages = stages_of(setup, lean, plan.batch, bench.measured)
    costs = step_costs(setup, lean, plan.batch, stages, bench.measured)
    ends = pipeline_ends(lean, plan.batch, costs)
    found = prediction_of(setup, lean, plan.batch, stages, costs, ends, bench.measured)
    assert plan.prediction is not None
    if not found.fits or found.step_time_s >= plan.prediction.step_time_s:
        return None
    proposal = proposal_of(setup.proposal, lean, plan.batch)
    return Plan(replace(setup, proposal=proposal), lean, plan.batch, found)


def _fits(bench: Bench, plan: Plan, k: int) -> bool:
    layout = replace(plan.layout, recompute_layers=k)
    stages = stages_of(bench.setup, layout, plan.batch, bench.measured)
    return memory_of(bench.setup, layout, plan.batch, stages, bench.habits).fits
