"""Lower bounds of a layout's step time and memory that need no stages: what the search compares before it cuts."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from meshwright.files.run import MeasuredUnits
from meshwright.files.setup import Setup
from meshwright.layout.degrees import Layout, Recompute
from meshwright.layout.schedules import SPLIT_BACKWARD
from meshwright.model.units import Unit, units_of
from meshwright.planner.cutting import SECONDS, Stages, proportions
from meshwright.planner.space import Group, Structure
from meshwright.predictor import groups
from meshwright.predictor.compute import Share
from meshwright.predictor.constants import CONTENTION, STEP_HOST_S
from meshwright.predictor.costs import ActionSeconds, copies_s, have_replicas, optimizer_s, pipeline_bound
from meshwright.predictor.exchanges import Parameters, hop_s, replica_groups, step_exchange
from meshwright.predictor.live import MeanWeights, live
from meshwright.predictor.memory import Habits, context_bytes, habits_of
from meshwright.predictor.memory_rows import States as Held
from meshwright.predictor.memory_rows import state_sizes
from meshwright.predictor.mixed import fastest, kinds_of, setup_on
from meshwright.predictor.share_tables import ShareTables
from meshwright.predictor.table import Figure, UnitTable, share_table

Floats = NDArray[np.float64]

ENDLESS = 1 << 16
"""Sequences of an endless micro-batch: whole tiles, full pipes."""

_ROUNDING = 1e-9  # relative: sums in another order
_ZEROS = np.arange(4)
_PLAIN = Layout(((),), (0,))  # the usual bucket and overlap


@dataclass(frozen=True, slots=True)
class ShareSums:
    """The figures of every unit under one share, and their sums. Seconds are of one micro-batch on one rank."""

    table: UnitTable
    proportions: bytes
    actions: Floats  # [unit, action of `ActionSeconds`]
    work_s: float
    forward_s: float
    backward_s: float
    repeated_s: float  # what full recompute repeats
    dense: float
    expert: float
    activation: float
    adapter: float


@dataclass
class Tables:
    """The sums of each share, counted once; they do not depend on the fixed parts of a layout, so that searches of
    one model on one cluster share them."""

    setup: Setup
    measured: MeasuredUnits | None = None
    known: dict[Share, ShareSums] = field(default_factory=dict)
    units: tuple[Unit, ...] = field(init=False)
    last: tuple[Group | None, ShareSums | None] = (None, None)
    before: tuple[Group | None, ShareSums | None] = (None, None)
    tables: ShareTables | None = None  # not before it is needed: a device may lack the precision

    def __post_init__(self) -> None:
        self.units = units_of(self.setup.proposal.arch)

    def __call__(self, group: Group) -> ShareSums:
        """The sums for the share of this group."""
        if self.last[0] is not group:  # asked several times in a row, in turn with shards inside a node
            before = self.last
            if self.before[0] is group:
                self.last = self.before
            else:
                self.last = group, self._of(group.share(self.setup.proposal.seq_len), group.structure)
            self.before = before
        assert self.last[1] is not None
        return self.last[1]

    def endless(self, s: Structure, recompute: Recompute) -> ShareSums:
        """The sums for an endless micro-batch on these degrees."""
        return self._of(Share(ENDLESS, self.setup.proposal.seq_len, s.tp, s.sp, s.cp, s.ep, s.etp, recompute), s)

    def _of(self, share: Share, degrees: Structure) -> ShareSums:
        if share not in self.known:
            if self.measured is not None:
                table = share_table(self.setup, share, degrees, self.measured, self.units)
            elif self.setup.proposal.cluster.parts:
                table = fastest(list(self.by_kind(share, degrees).values()))
            else:
                self.tables = self.tables or ShareTables(self.setup)
                table = self.tables(share, degrees)
            self.known[share] = _sums(table)
        return self.known[share]

    def by_kind(self, share: Share, degrees: Structure) -> dict[str, UnitTable]:
        """The figures of every unit on each kind of device of a mixed cluster."""
        return {
            device.name: share_table(setup_on(self.setup, device), share, degrees, None, self.units)
            for device in kinds_of(self.setup)
        }


def _sums(table: UnitTable) -> ShareSums:
    figures, total = table.figures, table.figures.sum(axis=0)
    inner = figures[:, Figure.TP_BACKWARD] + figures[:, Figure.CP_BACKWARD] + figures[:, Figure.EP_BACKWARD]
    ahead = figures[:, Figure.TP_FORWARD] + figures[:, Figure.CP_FORWARD] + figures[:, Figure.EP_FORWARD]
    actions = figures[:, : Figure.WEIGHT_BACKWARD + 1] + np.stack([ahead, inner, inner, np.zeros_like(inner)], axis=1)
    of = total.tolist()
    forward = of[Figure.FORWARD] + of[Figure.TP_FORWARD] + of[Figure.CP_FORWARD] + of[Figure.EP_FORWARD]
    backward = of[Figure.BACKWARD] + of[Figure.TP_BACKWARD] + of[Figure.CP_BACKWARD] + of[Figure.EP_BACKWARD]
    repeated = of[Figure.RECOMPUTE] + of[Figure.TP_FORWARD] + of[Figure.CP_FORWARD] + of[Figure.EP_FORWARD]
    return ShareSums(
        table, proportions(table), actions, float(total[list(SECONDS)].sum()), forward, backward, repeated,
        of[Figure.DENSE], of[Figure.EXPERT], of[Figure.ACTIVATION], of[Figure.ADAPTER],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class States:
    """Bytes of all ranks of a pipeline together, and what one has outside the tensor allocator. Padding and whole
    gradients that are kept beside shards are left out."""

    lasting: float  # weights, master copies, moments
    gradients: float
    step: float  # during the optimizer step only
    context: float


@dataclass(frozen=True, slots=True)
class _PerStep:
    """What degrees and a ZeRO stage cost at least, summed over the stages, whatever the micro-batch."""

    forward_s: float  # exchange beside the forward of every micro-batch
    backward_s: float
    copies_s: float  # of every micro-batch
    end_s: float  # gradient exchange after the last backward, hidden or not
    after_s: float  # of the mean rank, as the next
    optimizer_s: float
    states: States


@dataclass
class Floors:
    """Lower bounds of groups of layouts, for one job."""

    setup: Setup
    tables: Tables
    steps: dict[tuple[Structure, int, int, bool], _PerStep] = field(default_factory=dict)
    held: dict[tuple[Structure, bool], tuple[States, States, States, States]] = field(default_factory=dict)
    ends: dict[tuple[object, ...], float] = field(default_factory=dict)
    alive: dict[tuple[str, tuple[int, ...], int], tuple[MeanWeights, bool]] = field(default_factory=dict)
    habits: Habits = field(init=False)
    over: float = field(init=False)

    def __post_init__(self) -> None:
        self.habits = habits_of(self.setup)
        self.over = self.habits.over

    def of_group(self, group: Group) -> float:
        """A lower bound of the step of every layout in a group.

        The busiest rank works at least the mean. Where whole backwards come down a chain of pp stages, stage r costs
        all work before it once and its own m times: no partition of total work T makes the largest of these less than
        T / (1 - (1 - 1/m)^pp).
        """
        return self._pipeline_s(group, self.work_s(group)) + STEP_HOST_S.value

    def work_s(self, group: Group) -> float:
        """What all units together take at least for one micro-batch on one rank of these layouts."""
        return self._work_s(group, self.tables(group))

    def _work_s(self, group: Group, sums: ShareSums) -> float:
        some = group.recompute == "full" and self.setup.proposal.wanted.recompute_layers is not None
        return sums.work_s - sums.repeated_s if some else sums.work_s

    def _pipeline_s(self, group: Group, work_s: float) -> float:
        m, pp = group.micro_batches, group.structure.pp
        placed = self.setup.proposal.wanted.placement is not None
        chain = group.vpp == 1 and not placed and group.schedule not in SPLIT_BACKWARD
        return work_s / (1 - (1 - 1 / m) ** pp) if chain else m * work_s / pp

    def of_layout(self, group: Group, zero: int) -> float:
        """A lower bound of the step of one layout of a group: the group's, with what its ZeRO stage adds to every
        micro-batch, the exchange that the mean rank cannot hide, and the mean rank's optimizer and gathering."""
        sums, step = self.tables(group), self._per_step(group, zero)
        wanted, units, pp = self.setup.proposal.wanted, len(self.tables(group).table.names), group.structure.pp
        overlap = _PLAIN.overlap if wanted.overlap is None else wanted.overlap
        work = self._work_s(group, sums) + step.copies_s
        work += _beside(sums.forward_s, step.forward_s, units, overlap)
        work += _beside(sums.backward_s, step.backward_s, units, overlap)
        exposed = step.end_s
        if overlap:
            shown = max(0.0, step.end_s - sums.backward_s) if zero < 2 else 0.0
            exposed = shown + CONTENTION.value * (step.end_s - shown)
        pipeline = max(self._pipeline_s(group, work), (group.micro_batches * work + exposed) / pp)
        return (pipeline + step.optimizer_s + step.after_s + STEP_HOST_S.value) * (1 - _ROUNDING)

    def of_cut(self, group: Group, zero: int, stages: Stages) -> float:
        """A lower bound of the step of one layout of a group when its stages are known: its pipeline without what the
        replicas exchange beside it, which serves every ZeRO stage."""
        if group.recompute == "full" and self.setup.proposal.wanted.recompute_layers is not None:
            return 0.0  # which layers recompute depends on the stages
        s = group.structure
        key = (
            s.dp, s.tp, s.pp, s.cp, s.ep, s.etp, group.micro_batch, group.recompute, group.schedule, group.vpp,
        )  # fmt: skip
        if key not in self.ends:
            sizes = np.array([len(stage) for stage in stages])
            seconds = np.add.reduceat(self.tables(group).actions, np.cumsum(sizes) - sizes, axis=0).T
            proposal, share = self.setup.proposal, group.share(self.setup.proposal.seq_len)
            hop = hop_s(proposal.arch, proposal.training, proposal.cluster, share, group.structure)
            split = group.schedule in SPLIT_BACKWARD
            ends = pipeline_bound(group.placement, ActionSeconds(*seconds), hop, group.micro_batches, split)
            self.ends[key] = float(ends.max())
        step = self._per_step(group, zero)
        return (self.ends[key] + step.optimizer_s + step.after_s + STEP_HOST_S.value) * (1 - _ROUNDING)

    def memory(self, group: Group, zero: int) -> float:
        """Bytes that the fullest rank needs at least, however the stages are cut."""
        key = group.schedule, group.placement, group.micro_batches
        if key not in self.alive:
            alive = live(*key)
            self.alive[key] = alive.mean_weights(), bool(alive.counts.max() < group.micro_batches)
        weights, filled = self.alive[key]
        of, habits = self._per_step(group, zero).states, self.habits
        early = of.gradients if filled or habits.recipe.whole_gradients else 0.0
        least = max(
            weights.floor(self.tables(group).activation if habits.as_scheduled else 0.0, of.lasting + early),
            (of.lasting + of.gradients + of.step) / group.structure.pp,
        )
        return (least * self.over + of.context) * (1 - _ROUNDING)

    def states(self, s: Structure, together: bool) -> tuple[States, States, States, States]:
        """The least bytes of the states on these degrees, by ZeRO stage. `together`: embedding and head may lie on one
        rank."""
        key = s, together
        if key not in self.held:
            self.held[key] = self._states(s, self.tables.endless(s, "full"), together)
        return self.held[key]

    def _states(self, s: Structure, sums: ShareSums, together: bool) -> tuple[States, States, States, States]:
        cluster = self.setup.proposal.cluster
        tied = sums.table.tied if together else 0.0
        ends = float(sums.table.figures[[0, -1], Figure.DENSE].sum()) - tied
        offload = self.setup.proposal.wanted.offload or "none"
        of = Held(
            sums.dense - tied, sums.expert, ends, sums.adapter, self.setup.proposal.training.task == "lora", _ZEROS,
            groups.shard_group(cluster, s).size, groups.expert_gradient_group(cluster, s).size, False,
            offload != "none", offload == "parameters",
        )  # fmt: skip
        sizes = state_sizes(of, self.habits.recipe)
        columns = (sizes.weights + sizes.master + sizes.optimizer, sizes.gradients, sizes.step)
        context = context_bytes(self.setup, self.habits.stack, s)
        rows = [np.broadcast_to(column, 4).tolist() for column in columns]
        first, second, third, fourth = (States(a, b, c, context) for a, b, c in zip(*rows, strict=True))
        return first, second, third, fourth

    def _per_step(self, group: Group, zero: int) -> _PerStep:
        together = group.placement[0] == group.placement[-1]
        key = group.structure, zero, len(group.placement), together
        if key not in self.steps:
            self.steps[key] = self._least(group, zero, together)
        return self.steps[key]

    def _least(self, group: Group, zero: int, together: bool) -> _PerStep:
        proposal, s, sums = self.setup.proposal, group.structure, self.tables(group)
        cluster, training = proposal.cluster, proposal.training
        dense, expert = sums.dense - (sums.table.tied if together else 0.0), sums.expert
        states = self.states(s, together)[zero]
        each = np.array([dense / s.pp]), np.array([expert / s.pp])
        optimizer = float(optimizer_s(self.setup, s, zero, *each, self.tables.measured)[0])
        if not have_replicas(s, expert > 0):
            return _PerStep(0.0, 0.0, 0.0, 0.0, 0.0, optimizer, states)
        bucket = _PLAIN.bucket_mib if proposal.wanted.bucket_mib is None else proposal.wanted.bucket_mib
        exchange = step_exchange(
            proposal.arch, training, cluster, zero, bucket, replica_groups(cluster, s), Parameters(dense, expert),
            len(sums.table.names), len(group.placement), self.habits.stack,
        )  # fmt: skip
        copies_f, copies_b = copies_s(self.setup, zero, np.array([dense + expert]))  # none below ZeRO-2
        copies = float(copies_f[0] + copies_b[0])
        return _PerStep(
            exchange.forward_s, exchange.backward_s, copies, exchange.end_s, exchange.after_s / s.pp, optimizer, states
        )


def _beside(busy: float, exchange: float, units: int, overlap: bool) -> float:
    """What exchanges beside the work of several stages add to it at least: the sums stand for one stage with all the
    units, for what an exchange adds grows no faster than its work hides it."""
    if not overlap:
        return exchange
    alone = max(exchange - busy, 0.0) + exchange / units
    return (1 - CONTENTION.value) * alone + CONTENTION.value * exchange
