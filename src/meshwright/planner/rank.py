"""The ranked plans of a job, see `search.py`."""

import gc
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from meshwright.basics.errors import AnswerIsNo
from meshwright.basics.quantities import gib
from meshwright.files.plan import Plan
from meshwright.files.run import MeasuredUnits
from meshwright.files.setup import Setup
from meshwright.layout.degrees import RECOMPUTE
from meshwright.layout.proposal import Proposal
from meshwright.planner.candidates import Bench
from meshwright.planner.explain import why_ranked
from meshwright.planner.lighter import lighter
from meshwright.planner.nothing_fits import nothing_fits, nothing_runs
from meshwright.planner.search import Search, step_s
from meshwright.planner.space import Rejection, space
from meshwright.predictor.constants import RESOLUTION
from meshwright.predictor.memory import rank_memory
from meshwright.predictor.running_out import quantile

__all__ = ["PlanResult", "Rejection", "plan", "ranked", "ranked_within"]

_SAME_DEGREES = 1  # of a short list, at most so many plans share their degrees, unless there are too few others


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The ranking. `evaluated` layouts were compared by bound or simulation; `why[i]` says why `plans[i]` stands
    where it does; `rejected` names what was left out and the rule, framework limit or memory that decided."""

    evaluated: int
    seconds: float
    plans: tuple[Plan, ...]
    why: tuple[str, ...]
    rejected: tuple[Rejection, ...]


def _plainness(plan: Plan) -> tuple[object, ...]:
    """What is preferred among equals: fewer axes, no recompute, less sharding, less memory."""
    layout = plan.layout
    assert plan.prediction is not None
    return (
        layout.pp * layout.tp * layout.cp, RECOMPUTE.index(layout.recompute), layout.zero, layout.pp, layout.vpp,
        plan.prediction.worst_memory.total,
    )  # fmt: skip


def _ranked(found: list[Plan], top: int, same_degrees: int) -> tuple[Plan, ...]:
    """The plainest of the fastest first; then by time, the very fastest and at most `same_degrees` of the same
    degrees."""
    fastest = step_s(found[0]) * (1 + RESOLUTION.value)
    plainest = min((plan for plan in found if step_s(plan) <= fastest), key=_plainness)
    seen: Counter[tuple[int, ...]] = Counter()
    chosen = []
    for plan in (plainest, *(plan for plan in found if plan is not plainest)):
        layout = plan.layout
        degrees = (layout.dp, layout.tp, layout.pp, layout.cp, layout.ep)
        seen[degrees] += 1
        if seen[degrees] <= same_degrees or plan is found[0]:
            chosen.append(plan)
    return tuple(chosen[:top])


@contextmanager
def _no_cycles() -> Iterator[None]:
    """The collector of cycles stands still: a search makes many small objects and no cycles, and looking for some would
    take a third of its time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def plan(setup: Setup, top: int = 5, measured: MeasuredUnits | None = None) -> PlanResult:
    """Rank the layouts of a job, see `ranked`; `measured` unit times of a run replace the roofline."""
    return ranked(Bench(setup, measured), top)


def ranked(bench: Bench, top: int = 5) -> PlanResult:
    """Rank the layouts of a bench's job that run out of memory with no more than the probability that the job allows
    (`[search] risk`); where there are none, those that are more likely to fit than not. See `ranked_within`.

    Context counts as if it were as uncertain as the rest, so that no plan has more than that probability.
    """
    spread = bench.habits.spread
    share = bench.habits.over / quantile(spread, 1 - bench.setup.risk)
    if share < 1:
        try:
            return _with_whole_memory(ranked_within(bench.within(share), top), bench.setup)
        except AnswerIsNo:
            pass  # whatever the reason is, it is told of the whole memory
    return ranked_within(bench, top)


def _with_whole_memory(found: PlanResult, setup: Setup) -> PlanResult:
    """The plans with the memory that their devices really have."""
    return replace(found, plans=tuple(_restored(plan, setup) for plan in found.plans))


def _restored(plan: Plan, setup: Setup) -> Plan:
    assert plan.prediction is not None
    prediction = replace(
        plan.prediction, memory=rank_memory(setup, plan.layout, plan.batch),
        memory_limit_bytes=setup.proposal.cluster.memory_bytes,
    )  # fmt: skip
    return replace(plan, setup=replace(plan.setup, proposal=_proposal(plan, setup)), prediction=prediction)


def _proposal(plan: Plan, setup: Setup) -> Proposal:
    return replace(plan.setup.proposal, cluster=setup.proposal.cluster)


@_no_cycles()
def ranked_within(bench: Bench, top: int = 5) -> PlanResult:
    """Rank the layouts of a bench's job that more likely fit than not, fastest first; parts that the job fixes stay
    fixed.

    The fastest plan of the whole space is always found; the plainest of those that are as fast within the predictor's
    resolution ranks first. Of the plans found, those with full recompute recompute no more layers than memory asks for
    (`lighter.py`): the search itself knows none, selective and full. Plans differ in degrees, ZeRO stage or recompute.
    Raises AnswerIsNo when no layout is legal and runnable by the framework that the job names, or when none fits in
    memory, saying what would.
    """
    start, setup = time.perf_counter(), bench.setup
    found = space(setup, bench.refuse)
    if not found.families:
        raise AnswerIsNo(nothing_runs(setup, found.rejected))
    search = Search(bench, found)
    structures = len({family.structure.degrees for family in found.families})
    same = max(_SAME_DEGREES, -(-top // structures)) if top <= 10 else top
    fast = list(search.plans(top, same))
    if not fast:
        raise AnswerIsNo(nothing_fits(bench, found))
    fast = sorted((lighter(bench, one) or one for one in fast), key=step_s)
    plans = _ranked(fast, top, same)
    left_out = tuple(
        Rejection(
            f"{family}, recompute {recompute}", entry.count,
            f"needs {entry.text} of {gib(search.limit)} a device",
        )
        for (family, recompute), entry in search.too_large.items()
    )  # fmt: skip
    refused = tuple(Rejection(family, count, reason) for (family, reason), count in search.refused.items())
    rejected = (*left_out, *refused, *found.rejected)
    return PlanResult(found.size, time.perf_counter() - start, plans, why_ranked(plans), rejected)
