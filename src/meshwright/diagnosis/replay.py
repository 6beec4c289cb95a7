"""What-if: the run's own steps replayed by the event simulator, and replayed again with a change.

The replay of what happened must come close to what was measured: the miss widens every predicted range, and beyond a
limit nothing is predicted from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meshwright.diagnosis.evidence import Evidence
from meshwright.files.patch import apply
from meshwright.files.plan import Plan
from meshwright.files.run import MeasuredUnits
from meshwright.layout.schedules import actions
from meshwright.predictor.compute import UnitCost, unit_costs
from meshwright.predictor.pipeline import Simulation, simulate
from meshwright.timeline.columns import Action, Kind

TRUSTED = 0.10
"""A replay that misses the measured step by more than this share lowers the confidence of what it predicts."""

REFUSED = 0.30
"""Beyond this share nothing is predicted from it."""

_KINDS = (Action.FORWARD, Action.BACKWARD, Action.INPUT_BACKWARD, Action.WEIGHT_BACKWARD)

_ADD_UP = (0.7, 1.1)  # units over actions: beyond this, unit times only say how an action is shared out

Costs = tuple[tuple[float, ...], ...]
"""Device seconds of one micro-batch: forward, backward, input backward, weight backward; each by stage."""


@dataclass(frozen=True)
class Replay:
    """A run's step as the simulator repeats it. Seconds are device seconds.

    `costs` are the measured actions; `overhead` is what they took beyond the units of the stage; `scale` converts a
    unit's cost to what was seen, where units were not measured or do not add up to the actions. `fixed_s` lies
    outside the pipeline: before the first action and after the last, gradient exchange and optimizer included.
    """

    plan: Plan
    measured: MeasuredUnits | None
    costs: Costs
    overhead: Costs
    scale: Mapping[str, float]
    hop_s: float
    fixed_s: float
    observed_s: float

    def simulated(self, costs: Costs, plan: Plan | None = None) -> Simulation:
        """The pipeline of a plan (the run's own when left out) with those costs."""
        layout, batch = (plan or self.plan).layout, (plan or self.plan).batch
        orders = actions(layout.schedule, layout.placement, batch.micro_batches)
        return simulate(orders, layout.placement, costs[0], costs[1], costs[2], costs[3], hop_s=self.hop_s)

    def step_with(self, costs: Costs, plan: Plan | None = None) -> float:
        """Seconds of a step with those costs."""
        return self.simulated(costs, plan).makespan_s + self.fixed_s

    @property
    def unit_times(self) -> str:
        """Where the times of units come from, for people."""
        if self.measured is None:
            return "actions measured, shared out by the predictor"
        return "actions measured, shared out by measured units" if self.scale else "measured"

    @property
    def step_s(self) -> float:
        """The measured step, replayed."""
        return self.step_with(self.costs)

    @property
    def error(self) -> float:
        """Share by which the replay misses the measured step."""
        return abs(self.step_s - self.observed_s) / self.observed_s

    def unit_costs(self, plan: Plan | None = None) -> dict[str, UnitCost]:
        """Device seconds of every unit under the conditions of a plan, as far as known measured ones."""
        chosen = plan or self.plan
        return unit_costs(chosen.setup, chosen.layout, chosen.batch, self.measured)

    def changed(self, change: Mapping[str, object]) -> tuple[Costs, Plan]:
        """The costs by stage after a change to the plan, and that plan.

        Units cost what they were measured to cost, converted to the new conditions by the predictor; each stage keeps
        the overhead of its actions (the mean overhead where the number of stages changes).
        """
        plan = apply(self.plan, change)
        overhead = self.overhead
        if len(plan.layout.stages) != len(self.plan.layout.stages):
            overhead = tuple((float(np.mean(row)),) * len(plan.layout.stages) for row in overhead)
        sums = _by_stage(self.unit_costs(plan), plan, self.scale)
        whole = tuple(
            tuple(max(0.0, cost + extra) for cost, extra in zip(row, more, strict=True))
            for row, more in zip(sums, overhead, strict=True)
        )
        return whole, plan

    def gain(self, after_s: float, *, doubt: float = 0.0) -> tuple[float, float, float]:
        """(low, expected, high) share of the step saved. `doubt` widens the low side by that share of the gain."""
        expected = 1 - after_s / self.step_s
        width = max(0.1 * abs(expected), self.error)
        return max(-1.0, expected - width - doubt * abs(expected)), expected, min(1.0, expected + width)


def replay_of(evidence: Evidence) -> Replay | str:
    """The replay of a run with a plan and pipeline actions, or why there is none."""
    plan = evidence.plan
    if plan is None:
        return "no plan beside the spans: the schedule is not known"
    stages = range(len(plan.layout.stages))
    unseen = [stage for stage in stages if stage not in evidence.stage_ranks]
    if unseen:
        return f"no action of stages {unseen} was recorded"
    seen = {action for _, _, action in evidence.actions}
    costs = tuple(
        tuple(evidence.stage_cost(s, kind, extent=True, slowest=True) for s in stages) if kind in seen else ()
        for kind in _KINDS
    )
    units = unit_costs(plan.setup, plan.layout, plan.batch, evidence.measured)
    sums = _by_stage(units, plan, {})
    totals = [sum(row[s] for row in costs if row) for s in stages]
    known = [sum(row[s] for row, cost in zip(sums, costs, strict=True) if cost) for s in stages]
    add_up = evidence.measured is not None and _ADD_UP[0] <= sum(known) / max(sum(totals), 1e-12) <= _ADD_UP[1]
    scale: dict[str, float] = {}
    if not add_up:
        for s in stages:
            scale.update(dict.fromkeys(plan.layout.stages[s], totals[s] / known[s] if known[s] > 0 else 1.0))
        sums = _by_stage(units, plan, scale)
    filled = tuple(row or instead for row, instead in zip(costs, sums, strict=True))
    overhead = tuple(tuple(c - u for c, u in zip(row, own, strict=True)) for row, own in zip(filled, sums, strict=True))
    return Replay(
        plan, evidence.measured, filled, overhead, scale, _hop_s(evidence), _fixed_s(evidence), evidence.step_s
    )  # fmt: skip


def _by_stage(units: Mapping[str, UnitCost], plan: Plan, scale: Mapping[str, float]) -> Costs:
    rows: list[tuple[float, ...]] = []
    for name in ("forward_s", "backward_s", "input_backward_s", "weight_backward_s"):
        per_stage = [sum(getattr(units[u], name) * scale.get(u, 1.0) for u in held) for held in plan.layout.stages]
        rows.append(tuple(per_stage))
    return tuple(rows)


def _hop_s(evidence: Evidence) -> float:
    """Median seconds of a transfer between stages, waits left out."""
    line = evidence.timeline
    receives = (line.kind == Kind.COMMUNICATION) & (line.stage >= 0) & (line.sequence < 0) & (line.micro_batch >= 0)
    receives &= np.isin(line.action, _KINDS)
    if not receives.any():
        return 0.0
    return float(np.median((line.end - line.start)[receives])) / (1e9 * line.time_scale)


def _fixed_s(evidence: Evidence) -> float:
    """Median seconds of a step before its first pipeline action and after its last."""
    line = evidence.timeline
    acts = (line.kind == Kind.COMPUTE) & np.isin(line.action, _KINDS)
    outside = []
    for window in evidence.windows:
        mine = acts & (line.step == window.step)
        if mine.any():
            outside.append(window.length - int(line.end[mine].max() - line.start[mine].min()))
    return float(np.median(outside)) / (1e9 * line.time_scale) if outside else 0.0
