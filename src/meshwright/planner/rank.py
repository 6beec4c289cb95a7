"""The ranked plans of a job: a best-first search over lower bounds that never loses the fastest plan.

Groups of layouts enter with a bound that needs no stages, their layouts with a tighter one, then with a bound from
their own stages and costs, plans with their simulated step time. Whatever has the least key is refined next; a plan
that comes up is therefore at least as fast as everything not yet refined. Nothing is dropped for being unlikely.
"""

import gc
import heapq
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import AnswerIsNo
from meshwright.basics.quantities import gib
from meshwright.files.plan import Plan
from meshwright.files.run import MeasuredUnits
from meshwright.files.setup import Setup
from meshwright.layout.degrees import RECOMPUTE
from meshwright.layout.proposal import proposal_of
from meshwright.layout.rules import legal
from meshwright.planner.candidates import Bench, Candidate
from meshwright.planner.columns import columns_of
from meshwright.planner.explain import why_ranked
from meshwright.planner.nothing_fits import nothing_fits, nothing_runs
from meshwright.planner.refusals import refusal
from meshwright.planner.space import Group, Rejection, Space, Structure, space
from meshwright.predictor.constants import RESOLUTION, STEP_HOST_S

__all__ = ["PlanResult", "Rejection", "plan", "ranked"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_UNCUT, _EXACT, _CUT, _GROUP, _SHARE = range(5)
"""Of equal keys first what may still become a candidate, then the more refined."""

_SAME_DEGREES = 2  # of a short list, at most so many plans share their degrees


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The ranking. `evaluated` layouts were compared by bound or simulation; `why[i]` says why `plans[i]` stands
    where it does; `rejected` names what was left out and the rule, framework limit or memory that decided."""

    evaluated: int
    seconds: float
    plans: tuple[Plan, ...]
    why: tuple[str, ...]
    rejected: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True)
class _Uncut:
    """A layout that fits as far as can be told before its costs are known; `bounded` by its stages already?"""

    group: Group
    zero: int
    bounded: bool = False


def _floor_text(floor: float) -> str:
    return f"{gib(floor)}, however its stages are cut,"


@dataclass
class _TooLarge:
    """Layouts of some degrees and recompute that do not fit: how many, and the one that comes closest."""

    count: int
    least: float
    text: str


class _Run:
    """Groups that share a unit's work, by their bounds: the others wait until the first has come up."""

    def __init__(self, rows: Ints, bounds: Floats) -> None:
        order = np.argsort(bounds, kind="stable")
        self.rows, self.bounds = rows[order].tolist(), bounds[order].tolist()
        self.next = 0


Item = Ints | _Run | _Uncut | Candidate | tuple[Candidate, Plan]


class _Search:
    """The heap of one search. Keys are seconds; ties go to what was enumerated first, and to the more refined."""

    def __init__(self, bench: Bench, found: Space) -> None:
        self.bench = bench
        cluster = bench.setup.proposal.cluster
        self.limit = max((part.memory_bytes for part in cluster.parts), default=cluster.memory_bytes)
        self.columns, too_large = columns_of(found, bench.floors, self.limit)
        self.too_large = {
            (one.family.structure.text(), one.recompute): _TooLarge(one.count, one.least, _floor_text(one.least))
            for one in too_large
        }
        shares = self.columns.by_share()
        least = [float(self.columns.bound[rows[0]]) for rows in shares]
        self.waiting = iter([(least[one], shares[one]) for one in sorted(range(len(shares)), key=least.__getitem__)])
        self.heap: list[tuple[float, int, int, Item]] = []
        self.count = len(self.columns.bound)
        self._push_share()

    def _push_share(self) -> None:
        """Push the next best share: the others wait until it has come up."""
        if (following := next(self.waiting, None)) is not None:
            heapq.heappush(self.heap, (following[0], _SHARE, int(following[1][0]), following[1]))

    def _push_group(self, run: _Run) -> None:
        """Push the next best group of a run."""
        if run.next < len(run.rows):
            heapq.heappush(self.heap, (run.bounds[run.next], _GROUP, run.rows[run.next], run))
            run.next += 1

    def _share(self, rows: Ints) -> None:
        """Bound the groups of one share by its own figures."""
        work = self.bench.floors.work_s(self.columns.group(int(rows[0])))
        self._push_group(_Run(rows, self.columns.share_of_work[rows] * work + STEP_HOST_S.value))

    def _push(self, key: float, level: int, item: Item) -> None:
        self.count += 1
        heapq.heappush(self.heap, (key, level, self.count, item))

    def _expand(self, group: Group) -> None:
        """Push the group's layouts; those that cannot fit are counted instead."""
        for zero in group.zeros:
            floor = self.bench.floors.memory(group, zero)
            if floor > self.limit:
                self._does_not_fit(group, floor, _floor_text(floor))
            else:
                self._push(self.bench.floors.of_layout(group, zero), _UNCUT, _Uncut(group, zero))

    def _cut(self, item: _Uncut, key: float, number: int) -> None:
        """Push the layout with its stages and costs, or first with a better bound than `key`; it keeps its place among
        equals."""
        group, zero = item.group, item.zero
        stages = self.bench.stages(group)
        if stages is None:
            return
        if not item.bounded and (bound := self.bench.floors.of_cut(group, zero, stages)) > key:
            heapq.heappush(self.heap, (bound, _UNCUT, number, _Uncut(group, zero, bounded=True)))
            return
        for candidate in self.bench.expand(group, (zero,)):
            heapq.heappush(self.heap, (candidate.bound_s, _CUT, number, candidate))

    def _refine(self, candidate: Candidate) -> None:
        """Simulate a layout that fits and may run; one that does not fit comes back cut by memory, or is counted."""
        if not candidate.fits:
            again = self.bench.recut(candidate)
            if again is None:
                self._does_not_fit(candidate.group, candidate.worst_bytes, candidate.memory_text())
            else:
                self._push(again.bound_s, _CUT, again)
        elif self._may_run(candidate):
            found = self.bench.exact(candidate)
            self._push(_step_s(found), _EXACT, (candidate, found))

    def _does_not_fit(self, group: Group, least: float, text: str) -> None:
        seen = self.too_large.setdefault((group.structure.text(), group.recompute), _TooLarge(0, least, text))
        seen.count += 1
        if least < seen.least:
            seen.least, seen.text = least, text

    def _may_run(self, candidate: Candidate) -> bool:
        setup = self.bench.setup
        if not legal(proposal_of(setup.proposal, candidate.layout, candidate.batch)):
            return False
        return refusal(setup, candidate.layout) is None

    def plans(self, top: int, same_degrees: int) -> Iterator[Plan]:
        """Plans from the fastest on, each of another family (degrees, ZeRO stage, recompute): all that are as fast as
        the first within the resolution, then up to `top`, at most `same_degrees` of the same degrees."""
        families: set[tuple[Structure, int, str]] = set()
        degrees: Counter[Structure] = Counter()
        as_fast = float("inf")
        while self.heap:
            key, level, number, item = heapq.heappop(self.heap)
            if level == _SHARE:
                self._push_share()
            elif isinstance(item, _Run):
                self._push_group(item)
            if key > as_fast and sum(min(n, same_degrees) for n in degrees.values()) >= top:
                return
            if isinstance(item, np.ndarray):
                self._share(item)
                continue
            if isinstance(item, _Run):
                structure = self.columns.families[self.columns.family[number]].structure
            else:
                structure = (item[0] if isinstance(item, tuple) else item).group.structure
            if key > as_fast and degrees[structure] >= same_degrees:
                continue
            if isinstance(item, _Run):
                group = self.columns.group(number)
                if any((structure, zero, group.recompute) not in families for zero in group.zeros):
                    self._expand(group)
                continue
            group = (item[0] if isinstance(item, tuple) else item).group
            zero = item.zero if isinstance(item, _Uncut) else (item[0] if isinstance(item, tuple) else item).layout.zero
            family = (group.structure, zero, group.recompute)
            if family in families:
                continue
            if isinstance(item, _Uncut):
                self._cut(item, key, number)
                continue
            if isinstance(item, Candidate):
                self._refine(item)
                continue
            families.add(family)
            degrees[group.structure] += 1
            as_fast = min(as_fast, key * (1 + RESOLUTION.value))
            yield item[1]


def _plainness(plan: Plan) -> tuple[object, ...]:
    """What is preferred among equals: no recompute, fewer axes, less sharding, less memory."""
    layout = plan.layout
    assert plan.prediction is not None
    return (
        RECOMPUTE.index(layout.recompute), layout.pp * layout.tp * layout.cp, layout.zero, layout.pp, layout.vpp,
        plan.prediction.worst_memory.total,
    )  # fmt: skip


def _ranked(found: list[Plan], top: int, same_degrees: int) -> tuple[Plan, ...]:
    """The plainest of the fastest first; then by time, at most `same_degrees` of the same degrees."""
    fastest = _step_s(found[0]) * (1 + RESOLUTION.value)
    plainest = min((plan for plan in found if _step_s(plan) <= fastest), key=_plainness)
    seen: Counter[tuple[int, ...]] = Counter()
    chosen = []
    for plan in (plainest, *(plan for plan in found if plan is not plainest)):
        layout = plan.layout
        degrees = (layout.dp, layout.tp, layout.pp, layout.cp, layout.ep)
        seen[degrees] += 1
        if seen[degrees] <= same_degrees:
            chosen.append(plan)
    return tuple(chosen[:top])


def _step_s(plan: Plan) -> float:
    assert plan.prediction is not None
    return plan.prediction.step_time_s


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


@_no_cycles()
def ranked(bench: Bench, top: int = 5) -> PlanResult:
    """Rank the layouts of a bench's job, fastest first; parts that the job fixes stay fixed.

    The fastest plan of the whole space is always found; the plainest of those that are as fast within the predictor's
    resolution ranks first. Plans differ in degrees, ZeRO stage or recompute. Raises AnswerIsNo when no layout is legal
    and runnable by the framework that the job names, or when none fits in memory, saying what would.
    """
    start, setup = time.perf_counter(), bench.setup
    found = space(setup, bench.refuse)
    if not found.families:
        raise AnswerIsNo(nothing_runs(setup, found.rejected))
    search = _Search(bench, found)
    structures = len(found.families)
    same = max(_SAME_DEGREES, -(-top // structures)) if top <= 10 else top
    fast = list(search.plans(top, same))
    if not fast:
        raise AnswerIsNo(nothing_fits(bench, found))
    plans = _ranked(fast, top, same)
    left_out = tuple(
        Rejection(
            f"{family}, recompute {recompute}", entry.count,
            f"needs {entry.text} of {gib(search.limit)} a device",
        )
        for (family, recompute), entry in search.too_large.items()
    )  # fmt: skip
    return PlanResult(found.size, time.perf_counter() - start, plans, why_ranked(plans), (*left_out, *found.rejected))
