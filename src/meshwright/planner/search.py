"""The best-first search over lower bounds that never loses the fastest plan.

Groups of layouts enter with a bound that needs no stages, their layouts with a tighter one, then with a bound from
their own stages and costs, plans with their simulated step time. Whatever has the least key is refined next; a plan
that comes up is therefore at least as fast as everything not yet refined. Nothing is dropped for being unlikely.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.quantities import gib
from meshwright.files.plan import Plan
from meshwright.layout.proposal import proposal_of
from meshwright.layout.rules import LEGALITY, legal
from meshwright.planner.candidates import Bench, Candidate
from meshwright.planner.columns import Rows, columns_of
from meshwright.planner.groups import Group, Structure
from meshwright.planner.space import Space
from meshwright.predictor.constants import RESOLUTION, STEP_HOST_S

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_UNCUT, _EXACT, _CUT, _GROUP, _SHARE = range(5)
"""Of equal keys first what may still become a candidate, then the more refined."""


@dataclass(frozen=True, slots=True)
class _Uncut:
    """A layout that fits as far as can be told before its costs are known; `bounded` by its stages already? `inside`:
    the same with shards inside a node, which needs no less memory and is looked at where this one fits."""

    group: Group
    zero: int
    inside: Group | None = None
    bounded: bool = False


@dataclass(frozen=True, slots=True)
class _Cut:
    """A layout with its stages and costs, and the same with shards inside a node."""

    candidate: Candidate
    inside: Group | None = None

    @property
    def group(self) -> Group:
        """That of the candidate."""
        return self.candidate.group

    @property
    def zero(self) -> int:
        """That of the candidate."""
        return self.candidate.layout.zero


@dataclass(frozen=True, slots=True)
class _Exact:
    """A simulated plan of a group."""

    group: Group
    zero: int
    plan: Plan


def _floor_text(floor: float) -> str:
    return f"{gib(floor)}, however its stages are cut,"


@dataclass
class TooLarge:
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


Item = Rows | _Run | _Uncut | _Cut | _Exact


class Search:
    """The heap of one search. Keys are seconds; ties go to what was enumerated first, and to the more refined."""

    def __init__(self, bench: Bench, found: Space) -> None:
        self.bench = bench
        cluster = bench.setup.proposal.cluster
        self.limit = max((part.memory_bytes for part in cluster.parts), default=cluster.memory_bytes)
        self.columns, too_large = columns_of(found, bench.floors, self.limit)
        self.too_large = {
            (one.family.structure.text(), one.recompute): TooLarge(one.count, one.least, _floor_text(one.least))
            for one in too_large
        }
        self.refused: dict[tuple[str, str], int] = {}
        self.waiting = self.columns.by_share()
        self.heap: list[tuple[float, int, int, Item]] = []
        self.count = 1 << 40  # beyond all rows
        self.key = 0.0
        self._push_share()

    def _push_share(self) -> None:
        """Push the next best share: the others wait until it has come up."""
        if (following := next(self.waiting, None)) is not None:
            heapq.heappush(self.heap, (following.least, _SHARE, int(following.numbers[0]), following))

    def _push_group(self, run: _Run) -> None:
        """Push the next best group of a run."""
        if run.next < len(run.rows):
            heapq.heappush(self.heap, (run.bounds[run.next], _GROUP, run.rows[run.next], run))
            run.next += 1

    def _share(self, rows: Rows) -> None:
        """Bound the groups of one share by its own figures."""
        work = self.bench.floors.work_s(self.columns.groups(int(rows.numbers[0]))[0][0])
        self._push_group(_Run(rows.numbers, rows.share_of_work * work + STEP_HOST_S.value))

    def _push(self, key: float, level: int, item: Item) -> None:
        self.count += 1
        heapq.heappush(self.heap, (key, level, self.count, item))

    def _expand(self, groups: Sequence[Group], zeros: Sequence[int]) -> None:
        """Push the group's layouts; those that cannot fit are counted instead."""
        floors, group = self.bench.floors, groups[0]
        for zero in zeros:
            floor = floors.memory(group, zero)
            if floor > self.limit:
                self._does_not_fit(group, floor, _floor_text(floor))
                continue
            inside = next((other for other in groups[1:] if zero in other.zeros), None)
            if inside is not None and floors.memory(inside, zero) > self.limit:
                inside = None
            bound = floors.of_layout(group, zero)
            if inside is not None:
                bound = min(bound, floors.of_layout(inside, zero))
            self._push(bound, _UNCUT, _Uncut(group, zero, inside))

    def _cut(self, item: _Uncut, key: float, number: int) -> None:
        """Push the layout with its stages and costs, or first with a better bound than `key`; it keeps its place among
        equals."""
        group, zero, inside = item.group, item.zero, item.inside
        stages = self.bench.stages(group)
        if stages is None:
            return
        if not item.bounded:
            bound = self.bench.floors.of_cut(group, zero, stages)
            if inside is not None:
                bound = min(bound, self.bench.floors.of_cut(inside, zero, stages))
            if bound > key:
                heapq.heappush(self.heap, (bound, _UNCUT, number, _Uncut(group, zero, inside, bounded=True)))
                return
        for candidate in self.bench.expand(group, (zero,)):
            bound = candidate.bound_s if inside is None else min(candidate.bound_s, key)
            heapq.heappush(self.heap, (bound, _CUT, number, _Cut(candidate, inside)))

    def _refine(self, item: _Cut, number: int) -> None:
        """Simulate a layout that fits and may run; one that does not fit comes back cut by memory, or is counted."""
        candidate = item.candidate
        if not candidate.fits:
            again = self.bench.recut(candidate)
            if again is None:
                self._does_not_fit(item.group, candidate.worst_bytes, candidate.memory_text())
                return
            self._push(again.bound_s, _CUT, _Cut(again))
        elif candidate.bound_s > self.key:
            self._push(candidate.bound_s, _CUT, _Cut(candidate))
        elif self._may_run(candidate):
            found = self.bench.exact(candidate)
            self._push(step_s(found), _EXACT, _Exact(candidate.group, candidate.layout.zero, found))
        if item.inside is not None:
            for other in self.bench.expand(item.inside, (item.zero,)):
                heapq.heappush(self.heap, (other.bound_s, _CUT, number, _Cut(other)))

    def _does_not_fit(self, group: Group, least: float, text: str) -> None:
        seen = self.too_large.setdefault((group.structure.text(), group.recompute), TooLarge(0, least, text))
        seen.count += 1
        if least < seen.least:
            seen.least, seen.text = least, text

    def _may_run(self, candidate: Candidate) -> bool:
        setup = self.bench.setup
        proposal = proposal_of(setup.proposal, candidate.layout, candidate.batch)
        if not legal(proposal):
            broken = next(rule for rule in LEGALITY if not rule.holds(proposal))
            reason = f"[{broken.name}] {broken.explain(proposal).message}"
        else:
            reason = self.bench.refuse(candidate.layout) or ""
        if reason:
            key = candidate.group.structure.text(), reason
            self.refused[key] = self.refused.get(key, 0) + 1
        return not reason

    def plans(self, top: int, same_degrees: int) -> Iterator[Plan]:
        """Plans from the fastest on, each of another family (degrees, ZeRO stage, recompute): all that are as fast as
        the first within the resolution, then up to `top`, at most `same_degrees` of the same degrees."""
        families: set[tuple[Structure, int, str]] = set()
        degrees: Counter[tuple[int, ...]] = Counter()
        as_fast = float("inf")
        while self.heap:
            key, level, number, item = heapq.heappop(self.heap)
            if level == _SHARE:
                self._push_share()
            elif isinstance(item, _Run):
                self._push_group(item)
            if key > as_fast and sum(min(n, same_degrees) for n in degrees.values()) >= top:
                return
            if isinstance(item, Rows):
                self._share(item)
                continue
            called = self.columns.degrees(number) if isinstance(item, _Run) else item.group.structure.degrees
            if key > as_fast and degrees[called] >= same_degrees:
                continue
            if isinstance(item, _Run):
                groups, room = self.columns.groups(number)
                of = groups[0].structure, groups[0].recompute
                zeros = [zero for zero in groups[0].zeros if room[zero] and (of[0], zero, of[1]) not in families]
                self._expand(groups, zeros)
                continue
            family = (item.group.structure, item.zero, item.group.recompute)
            if family in families:
                continue
            if isinstance(item, _Uncut):
                self._cut(item, key, number)
                continue
            if isinstance(item, _Cut):
                self.key = key
                self._refine(item, number)
                continue
            families.add(family)
            degrees[called] += 1
            as_fast = min(as_fast, key * (1 + RESOLUTION.value))
            yield item.plan


def step_s(plan: Plan) -> float:
    """The plan's predicted step, in seconds."""
    assert plan.prediction is not None
    return plan.prediction.step_time_s
