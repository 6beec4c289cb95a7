"""The prediction of one plan: step time as a waterfall of causes, memory, and the predicted timeline.

All times are device seconds of devices that nobody else uses. On a local cluster whose workers outnumber the cores,
wall time is longer by their sharing; measured device seconds (dilated mode) are what compares.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from meshwright.files.plan import Plan
from meshwright.files.prediction import Prediction
from meshwright.files.run import MeasuredUnits
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.layout.schedules import actions
from meshwright.predictor import constants
from meshwright.predictor.costs import StepCosts, pipeline_bound, step_costs
from meshwright.predictor.memory import fits, memory_of, stage_memories
from meshwright.predictor.mixed import stages_of
from meshwright.predictor.origins import origins_of
from meshwright.predictor.pipeline import Costs, Simulation, rank_ends, simulate
from meshwright.predictor.spread import spread_of
from meshwright.predictor.stacks import Stack, stack_of
from meshwright.predictor.table import Figure, StageTable, by_rank
from meshwright.predictor.utilisation import model_flops_utilisation
from meshwright.timeline.columns import Action, Kind, Timeline, build

Floats = NDArray[np.float64]


def run_pipeline(layout: Layout, batch: Batch, costs: StepCosts) -> Simulation:
    """The simulated pipeline of one step, without what follows the last backward."""
    return simulate(
        actions(layout.schedule if layout.pp > 1 else "1f1b", layout.placement, batch.micro_batches), layout.placement,
        costs.forward_s.tolist(), costs.backward_s.tolist(), costs.input_backward_s.tolist(),
        costs.weight_backward_s.tolist(), costs.hop_s,
    )  # fmt: skip


def pipeline_ends(layout: Layout, batch: Batch, costs: StepCosts, stack: Stack | None = None) -> Floats:
    """When each pipeline rank ends its last action, seconds from the start of the step. Zero-bubble schedules with
    twice the memory of 1F1B (Qi et al. 2024, ZB-H2) leave no bubble but the way of the first micro-batch."""
    if len(layout.placement) == 1:
        return (costs.forward_s + costs.backward_s) * batch.micro_batches
    if stack is not None and stack.in_flight >= 2 and layout.schedule == "zb-h1" and layout.pp > 1:
        return pipeline_bound(layout.placement, costs.actions, costs.hop_s, batch.micro_batches, split=True)
    orders = actions(layout.schedule if layout.pp > 1 else "1f1b", layout.placement, batch.micro_batches)
    seconds: Costs = {
        "F": costs.forward_s.tolist(), "B": costs.backward_s.tolist(), "I": costs.input_backward_s.tolist(),
        "W": costs.weight_backward_s.tolist(),
    }  # fmt: skip
    return np.array(rank_ends(orders, layout.placement, seconds, costs.hop_s))


def step_seconds(ends: Floats, costs: StepCosts) -> float:
    """The whole step: the slowest rank's pipeline and exchange, then what all wait for (the global gradient norm, the
    slowest optimizer, new parameters), and the host's own time. A lower bound when `ends` are lower bounds."""
    last = float((ends + costs.exposed_s).max())
    optimizer = float(costs.optimizer_s.max())
    return last + costs.tied_s + optimizer + costs.after_s + constants.STEP_HOST_S.value


def _waterfall(layout: Layout, batch: Batch, stages: StageTable, costs: StepCosts, ends: Floats) -> dict[str, float]:
    """Seconds a step by cause. Means over pipeline ranks, then what makes the slowest rank slower (imbalance), the
    hops of filling and draining (pp_comm), what else the ranks wait for (bubble), and the end of the step."""
    m = batch.micro_batches

    def mean(values: Floats) -> float:
        return float(values.sum()) * m / layout.pp

    busy = by_rank(costs.forward_s + costs.backward_s, layout.placement, layout.pp) * m
    recompute, host = mean(stages[Figure.RECOMPUTE]), mean(stages[Figure.HOST])
    both = mean(stages[Figure.FORWARD] + stages[Figure.BACKWARD])
    pipeline = float(ends.max())
    waiting = max(0.0, pipeline - float(busy.max()))
    crossings = sum(a != b for a, b in pairwise(layout.placement))
    hops = min(waiting, 2 * crossings * costs.hop_s)
    terms = {
        "recompute": recompute,
        "tp_comm": mean(stages[Figure.TP_FORWARD] + stages[Figure.TP_BACKWARD]),
        "cp_comm": mean(stages[Figure.CP_FORWARD] + stages[Figure.CP_BACKWARD]),
        "ep_comm": mean(stages[Figure.EP_FORWARD] + stages[Figure.EP_BACKWARD]),
        "dp_comm": mean(costs.stage_dp_s) + float((ends + costs.exposed_s).max()) - pipeline + costs.after_s,
        "imbalance": float(busy.max() - busy.mean()),
        "bubble": waiting - hops,
        "pp_comm": hops + costs.tied_s,
        "optimizer": float(costs.optimizer_s.max()),
        "host": host + constants.STEP_HOST_S.value,
    }
    return {"compute": both - recompute - host, **terms}


def prediction_of(
    setup: Setup,
    layout: Layout,
    batch: Batch,
    stages: StageTable,
    costs: StepCosts,
    ends: Floats,
    measured: MeasuredUnits | None = None,
) -> Prediction:
    """The prediction, once the pipeline has been simulated (`ends`, seconds by pipeline rank)."""
    proposal = setup.proposal
    terms = _waterfall(layout, batch, stages, costs, ends)
    step_s = step_seconds(ends, costs)
    compute = by_rank(stages[Figure.FORWARD] + stages[Figure.BACKWARD], layout.placement, layout.pp)
    compute = compute * batch.micro_batches
    busy = by_rank(costs.forward_s + costs.backward_s, layout.placement, layout.pp)
    pipeline = float(ends.max())
    memory = stage_memories(layout, memory_of(setup, layout, batch, stages))
    limit = proposal.cluster.memory_bytes
    low, high = spread_of(setup, terms, step_s)
    communication = ("tp_comm", "cp_comm", "ep_comm", "pp_comm", "dp_comm")
    return Prediction(
        step_time_s=step_s,
        step_time_range_s=(step_s * low.value, step_s * high.value),
        tokens_per_s=batch.tokens / step_s,
        tokens_per_s_per_gpu=batch.tokens / step_s / layout.world,
        mfu=model_flops_utilisation(proposal, batch, layout.world, step_s),
        bubble_fraction=max(0.0, float(1 - busy.mean() * batch.micro_batches / pipeline)),
        exposed_comm_s=sum(terms[name] for name in communication),
        terms=terms,
        stage_compute_s=tuple(compute.tolist()),
        idle_fraction=tuple((1 - compute / step_s).tolist()),
        memory=memory,
        memory_limit_bytes=limit,
        fits=fits(memory),
        origins={**origins_of(setup, layout, batch, measured), "range": low.origin},
    )


def predict(plan: Plan, measured: MeasuredUnits | None = None) -> Prediction:
    """The figures of one plan, in device seconds of uncontended devices; `terms` sum to `step_time_s`.

    `measured` are unit times of a run, used in place of the roofline. Memory that does not fit is reported
    (`fits`), not raised. Raises InputError when the device has no units for the precision.
    """
    stages = stages_of(plan.setup, plan.layout, plan.batch, measured)
    costs = step_costs(plan.setup, plan.layout, plan.batch, stages, measured)
    ends = pipeline_ends(plan.layout, plan.batch, costs, stack_of(plan.setup))
    return prediction_of(plan.setup, plan.layout, plan.batch, stages, costs, ends, measured)


_TAIL_NAMES = ("gradient exchange", "optimizer", "parameter gather")


def predicted_timeline(plan: Plan, measured: MeasuredUnits | None = None) -> Timeline:
    """One step of one data-parallel replica as spans, mode predicted; ranks are pipeline ranks.

    Pipeline actions come from the simulator; the gradient exchange begins when a rank's last backward begins to
    release gradients and ends after it by what is exposed; the optimizer follows on all ranks together.
    """
    stages = stages_of(plan.setup, plan.layout, plan.batch, measured)
    costs = step_costs(plan.setup, plan.layout, plan.batch, stages, measured)
    simulated = run_pipeline(plan.layout, plan.batch, costs)
    spans = simulated.timeline()
    ends = np.array([end[-1] for end in simulated.end])
    rows: list[tuple[int, int, float, float, Kind, Action, str]] = []
    together = float((ends + costs.exposed_s).max()) + costs.tied_s
    for rank, end in enumerate(ends.tolist()):
        over = end + float(costs.exposed_s[rank])
        if costs.exchange_s[rank] > 0:
            begin = max(0.0, over - float(costs.exchange_s[rank]))
            rows.append((rank, 1, begin, over, Kind.COMMUNICATION, Action.NONE, _TAIL_NAMES[0]))
        done = together + float(costs.optimizer_s[rank])
        rows.append((rank, 0, together, done, Kind.COMPUTE, Action.OPTIMIZER, _TAIL_NAMES[1]))
        if costs.after_s > 0:
            slowest = together + float(costs.optimizer_s.max())
            rows.append((rank, 1, slowest, slowest + costs.after_s, Kind.COMMUNICATION, Action.NONE, _TAIL_NAMES[2]))
    return _joined(spans, rows)


def _joined(spans: Timeline, rows: Sequence[tuple[int, int, float, float, Kind, Action, str]]) -> Timeline:
    """The simulator's spans and those of the end of the step, in one timeline."""
    names = list(dict.fromkeys([*spans.names, *_TAIL_NAMES]))
    count = len(rows)
    columns: dict[str, NDArray[np.generic]] = {}
    extra = {
        "rank": [row[0] for row in rows], "stream": [row[1] for row in rows],
        "start": [round(row[2] * 1e9) for row in rows], "end": [round(row[3] * 1e9) for row in rows],
        "kind": [row[4] for row in rows], "action": [row[5] for row in rows],
        "name": [names.index(row[6]) for row in rows], "group": [-1] * count, "sequence": [-1] * count,
        "size": [-1] * count, "stage": [-1] * count, "micro_batch": [-1] * count, "step": [0] * count,
    }  # fmt: skip
    for column, values in extra.items():
        columns[column] = np.concatenate([getattr(spans, column), np.array(values, np.int64)])
    return build(dict(columns), names=names, mode="predicted", recorded=spans.recorded)
