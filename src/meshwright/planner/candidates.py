"""Candidates of the search: their stages, their memory, a lower bound of their step time, and the exact one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.quantities import gib
from meshwright.files.plan import Plan
from meshwright.files.run import MeasuredUnits
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.layout.partition import even_stages
from meshwright.layout.proposal import Wanted, proposal_of
from meshwright.layout.schedules import SPLIT_BACKWARD
from meshwright.planner.cutting import Cutter, Stages, cut_by_memory
from meshwright.planner.floors import Floors, Tables
from meshwright.planner.refusals import Refusals, whole_layers
from meshwright.planner.space import NOT_SEARCHED, Group, with_fixed
from meshwright.predictor.costs import StepCosts, pipeline_bound, step_costs
from meshwright.predictor.live import live
from meshwright.predictor.memory import Habits, Memory, habits_of, memory_of
from meshwright.predictor.mixed import paces, stages_of
from meshwright.predictor.step import pipeline_ends, prediction_of, step_seconds
from meshwright.predictor.table import Figure, StageTable, UnitTable

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """One layout with its stages cut. `bound_s` never exceeds its step time; `memory` is every byte of its ranks."""

    group: Group
    layout: Layout
    batch: Batch
    stages: StageTable
    costs: StepCosts
    memory: Memory
    bound_s: float

    @property
    def worst_bytes(self) -> float:
        """Bytes of the fullest pipeline rank."""
        return float(self.memory.needs.max())

    @property
    def fits(self) -> bool:
        """No rank is more likely to run out of memory than not."""
        return self.memory.fits

    def memory_text(self) -> str:
        """`52.10 GiB (activations 30.20 GiB, optimizer 9.00 GiB)`: the fullest rank and its largest parts."""
        rank = int(np.argmax(self.memory.needs))
        parts = sorted(((float(sizes[rank]), kind) for kind, sizes in self.memory.by_kind().items()), reverse=True)
        return f"{gib(self.worst_bytes)} ({', '.join(f'{kind} {gib(size)}' for size, kind in parts[:2])})"


_STATES = ("weights", "gradients", "master", "optimizer")
_MOVING = (*_STATES, "activations", "recomputed")
"""Kinds of bytes that move with the units from stage to stage."""

_BESIDE_GROUPS = (*NOT_SEARCHED, "recompute_layers", "stages", "placement")
"""The parts of a layout that may be fixed and that no group names."""


@dataclass
class Bench:
    """What the candidates of one search share: unit figures by share, stages by share and number of stages."""

    setup: Setup
    measured: MeasuredUnits | None = None
    tables: Tables = field(init=False)
    floors: Floors = field(init=False)
    cutter: Cutter = field(init=False)
    refuse: Refusals = field(init=False)
    habits: Habits = field(init=False)
    known: dict[tuple[Group, int], Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tables = Tables(self.setup, self.measured)
        self.floors = Floors(self.setup, self.tables)
        self.cutter = Cutter(whole_layers(self.setup))
        self.refuse = Refusals(self.setup)
        self.habits = habits_of(self.setup)

    def pinned(self, wanted: Wanted) -> "Bench":
        """The bench of the same job with other parts of the layout fixed. Figures and cuts do not depend on them; what
        depends only on parts that the groups name is shared as well."""
        setup = replace(self.setup, proposal=replace(self.setup.proposal, wanted=wanted))
        other = Bench(setup, self.measured)
        other.tables, other.cutter = self.tables, self.cutter
        before = self.setup.proposal.wanted
        if all(getattr(wanted, name) == getattr(before, name) for name in _BESIDE_GROUPS):
            other.floors, other.refuse, other.known = self.floors, self.refuse, self.known
        else:
            other.floors = Floors(setup, self.tables)
        return other

    def limited(self, memory_bytes: int) -> "Bench":
        """The bench of the same job on devices with that much memory at most; unit figures and cuts are shared."""
        return self._with_memory(lambda own: min(own, memory_bytes))

    def within(self, share: float) -> "Bench":
        """The bench of the same job on devices with that share of their memory."""
        return self._with_memory(lambda own: int(own * share))

    def _with_memory(self, of: Callable[[int], int]) -> "Bench":
        cluster = self.setup.proposal.cluster
        parts = tuple(replace(part, memory_bytes=of(part.memory_bytes)) for part in cluster.parts)
        smaller = replace(cluster, memory_bytes=of(cluster.memory_bytes), parts=parts)
        other = Bench(replace(self.setup, proposal=replace(self.setup.proposal, cluster=smaller)), self.measured)
        other.tables, other.floors, other.cutter, other.refuse = self.tables, self.floors, self.cutter, self.refuse
        return other

    def table(self, group: Group) -> UnitTable:
        """The figures of every unit for the share of this group."""
        return self.tables(group).table

    def stages(self, group: Group) -> Stages | None:
        """The stages of a group: as the user fixed them, else balanced by time."""
        proposal = self.setup.proposal
        if proposal.wanted.stages is not None:
            return proposal.wanted.stages
        if self.setup.runnable_by == "deepspeed":
            return even_stages(proposal.arch, len(group.placement))
        sums = self.tables(group)
        placed = proposal.wanted.placement is not None
        return self.cutter(sums.table, sums.proportions, group.placement, by_rank=placed, paces=self._paces(group))

    def _paces(self, group: Group) -> tuple[float, ...]:
        """How fast each stage of a group runs, where devices differ."""
        if not self.setup.proposal.cluster.parts or self.measured is not None:
            return ()
        tables = self.tables.by_kind(group.share(self.setup.proposal.seq_len), group.structure)
        return paces(self.setup, tables, group.placement, group.structure.pp)

    def layout(self, group: Group, zero: int, stages: Stages) -> Layout:
        """The complete layout, with the fixed parts that the search does not vary."""
        s, wanted = group.structure, self.setup.proposal.wanted
        layout = Layout(
            stages, group.placement, s.dp, s.tp, s.pp, s.cp, s.ep, s.etp, group.vpp, s.sp, zero, s.shard_group,
            group.schedule, group.recompute, wanted.recompute_layers,
        )  # fmt: skip
        return with_fixed(layout, wanted)

    def candidate(self, group: Group, zero: int, stages: Stages) -> Candidate:
        """The layout with its costs and memory."""
        proposal = self.setup.proposal
        layout = self.layout(group, zero, stages)
        batch = Batch(proposal.global_batch, group.micro_batch, group.micro_batches, proposal.seq_len)
        whole = layout.recompute != "full" or layout.recompute_layers is None
        sums = stages_of(self.setup, layout, batch, self.measured, self.table(group) if whole else None)
        costs = step_costs(self.setup, layout, batch, sums, self.measured)
        ends = pipeline_bound(
            layout.placement, costs.actions, costs.hop_s, batch.micro_batches, layout.schedule in SPLIT_BACKWARD
        )
        memory = memory_of(self.setup, layout, batch, sums, self.habits)
        return Candidate(group, layout, batch, sums, costs, memory, step_seconds(ends, costs))

    def expand(self, group: Group, zeros: Sequence[int]) -> Iterator[Candidate]:
        """The layouts of a group, one a ZeRO stage, balanced by time whether that fits in memory or not."""
        stages = self.stages(group)
        if stages is not None:
            for zero in zeros:
                if (group, zero) not in self.known:
                    self.known[group, zero] = self.candidate(group, zero, stages)
                yield self.known[group, zero]

    def recut(self, found: Candidate) -> Candidate | None:
        """A layout that does not fit, cut so that every stage does: states and activations move with the units. Never
        faster than balanced by time. None when there is no such cut, or the job leaves no freedom to cut."""
        layout, group = found.layout, found.group
        fixed = self.setup.proposal.wanted.stages is not None or self.setup.runnable_by == "deepspeed"
        if fixed or layout.pp == 1 or len(layout.placement) != layout.pp:
            return None
        memory, size = found.memory, (1, layout.pp)
        backward = {kind: np.broadcast_to(sizes, size)[0] for kind, sizes in memory.parts.backward.items()}
        room = (memory.limits - memory.parts.context) / self.habits.over
        states = sum(backward[kind] for kind in _STATES)
        rest = sum(sizes for kind, sizes in backward.items() if kind not in _MOVING)
        again = backward["recomputed"]
        if float(np.sum(states + backward["activations"] + rest)) > float(room.sum()):
            return None
        parameters = float(found.stages[Figure.DENSE].sum() + found.stages[Figure.EXPERT].sum())
        alive = live(layout.schedule, layout.placement, found.batch.micro_batches).peak(np.ones(layout.pp))
        limits = (room - rest - float(again.max())).tolist()
        each = float(np.sum(states)) / parameters
        stages = cut_by_memory(
            self.cutter, self.table(group), layout.placement, each, alive.tolist(), limits, self._paces(group)
        )
        if stages is None:
            return None
        recut = self.candidate(group, layout.zero, stages)
        return recut if recut.fits else None

    def fitted(self, group: Group, zeros: Sequence[int]) -> Iterator[Candidate]:
        """The layouts of a group, those that do not fit cut by memory where that helps."""
        for candidate in self.expand(group, zeros):
            yield candidate if candidate.fits else self.recut(candidate) or candidate

    def exact(self, candidate: Candidate) -> Plan:
        """The candidate as a plan, its pipeline simulated."""
        ends = pipeline_ends(candidate.layout, candidate.batch, candidate.costs)
        prediction = prediction_of(
            self.setup, candidate.layout, candidate.batch, candidate.stages, candidate.costs, ends, self.measured
        )
        proposal = proposal_of(self.setup.proposal, candidate.layout, candidate.batch)
        return Plan(replace(self.setup, proposal=proposal), candidate.layout, candidate.batch, prediction)


def leanest(bench: Bench, groups: Sequence[Group]) -> Candidate | None:
    """The candidate that comes closest to fitting, or leaves most room."""
    best: Candidate | None = None
    for group in groups:
        for candidate in bench.fitted(group, group.zeros):
            if best is None or candidate.memory.excess < best.memory.excess:
                best = candidate
    return best
