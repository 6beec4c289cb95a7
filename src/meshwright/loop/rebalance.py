"""The plan that a measurement asks for: stages balanced by the unit times of a run."""

from dataclasses import dataclass, replace
from pathlib import Path

from meshwright.basics.errors import bad_input
from meshwright.files.patch import apply
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import read_plan
from meshwright.files.prediction import Prediction
from meshwright.files.run import MeasuredUnits, RunFolder
from meshwright.files.run_io import read_units
from meshwright.layout.partition import balance_placed
from meshwright.model.units import compact
from meshwright.predictor.compute import seconds_by_unit, unit_costs
from meshwright.predictor.memory import rank_memory
from meshwright.predictor.step import predict


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """A plan before and after its layers moved, both predicted from the same measured unit times."""

    before: Plan
    after: Plan
    moves: tuple[str, ...]  # "stage 3 -> stage 1: layers.4"

    @property
    def predicted_gain(self) -> float:
        """Share of the step time that the move is predicted to save."""
        return 1 - _prediction(self.after).step_time_s / _prediction(self.before).step_time_s


def _prediction(plan: Plan) -> Prediction:
    if plan.prediction is None:
        raise ValueError("the plan carries no prediction")
    return plan.prediction


def moves(before: Plan, after: Plan) -> tuple[str, ...]:
    """Which units moved from which stage to which, runs of units joined."""
    home = {unit: stage for stage, units in enumerate(after.layout.stages) for unit in units}
    shifted: dict[tuple[int, int], list[str]] = {}
    for stage, units in enumerate(before.layout.stages):
        for unit in units:
            if home[unit] != stage:
                shifted.setdefault((stage, home[unit]), []).append(unit)
    return tuple(
        f"stage {source} -> stage {target}: {', '.join(compact(units))}" for (source, target), units in shifted.items()
    )


def rebalanced(plan: Plan, measured: MeasuredUnits | None) -> Rebalanced:
    """The same plan with its stages cut by measured unit times so that the busiest pipeline rank has least to do.

    A partition that does not fit in memory, or that the simulator does not find faster, is not taken: the plan then
    stays as it is.
    """
    before = replace(plan, prediction=predict(plan, measured))
    names = [unit for stage in plan.layout.stages for unit in stage]
    seconds = seconds_by_unit(unit_costs(plan.setup, plan.layout, plan.batch, measured))
    stages = balance_placed(names, seconds, plan.layout.placement)
    after = apply(plan, {"layout.stages": stages})
    limit = plan.setup.proposal.cluster.memory_bytes
    fits = all(rank.total <= limit for rank in rank_memory(after.setup, after.layout, after.batch))
    after = replace(after, prediction=predict(after, measured))
    if not fits or _prediction(after).step_time_s >= _prediction(before).step_time_s:
        after = before
    return Rebalanced(before, after, moves(before, after))


def rebalance(run: Path) -> Rebalanced:
    """Balance the plan of a run by what the run measured. Raises InputError when the run measured no unit times."""
    folder = RunFolder(run)
    if not folder.units.exists():
        raise bad_input("the run recorded no unit times", file=str(run), legal="train with --profile to record them")
    return rebalanced(read_plan(folder.plan), read_units(folder.units))
