"""Every group of a space at once, as columns of numbers: which can fit at all, and how fast they can be at best.

A group is a row here until the search asks for it. What its micro-batch costs is bounded by an endless one: a kernel
or a collective on fewer tokens is never better used than on a great many, so time and bytes a token only grow.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.layout.degrees import RECOMPUTE
from meshwright.layout.schedules import SPLIT_BACKWARD
from meshwright.planner.floors import ENDLESS, Floors, ShareSums
from meshwright.planner.space import Family, Feature, Group, Space
from meshwright.predictor.constants import STEP_HOST_S

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_SLACK = 0.998  # what such a micro-batch still loses at its ends


@dataclass(frozen=True, slots=True)
class _Kind:
    """The rows of families with the same features, batches and pipeline degree."""

    feature: Ints
    batch: Ints
    micro_batch: Ints
    micro_batches: Floats
    recompute: Ints
    share_of_work: Floats  # of all work of a micro-batch, how much the step lasts at least
    zeros: Flags  # [row, ZeRO stage]
    alike: Floats  # weights as in `MeanWeights`
    smallest: Floats
    plain: Floats
    gradients: Flags  # they exist by the time of the most activations


@dataclass(frozen=True)
class Columns:
    """The groups that may fit, a row each. A step lasts at least `share_of_work` times what all units take for one
    micro-batch on one rank; `bound` is that for an endless micro-batch's time a sequence, in seconds."""

    families: tuple[Family, ...]
    family: Ints
    feature: Ints
    batch: Ints
    micro_batch: Ints
    share: Ints  # rows of equal numbers have the same share of a unit's work
    share_of_work: Floats
    bound: Floats  # of the step, seconds

    def group(self, row: int) -> Group:
        """The group of a row."""
        family: Family = self.families[self.family[row]]
        return family.group(int(self.feature[row]), int(self.batch[row]))

    def by_share(self) -> list[Ints]:
        """The rows of each share, those with the least bound first."""
        order = np.lexsort((self.bound, self.share))
        starts = np.flatnonzero(np.diff(self.share[order], prepend=-1))
        return np.split(order, starts[1:]) if len(order) else []


@dataclass(frozen=True, slots=True)
class TooLarge:
    """Layouts that cannot fit however their stages are cut: of which degrees and recompute, how many, and the bytes of
    the one that comes closest."""

    family: Family
    recompute: str
    count: int
    least: float


def _weights(of: Feature, pp: int, m: Floats) -> tuple[Floats, Floats, Floats, Flags]:
    """`MeanWeights` by number of micro-batches where the schedule has a closed form; else what holds for every
    schedule: before a rank's first backward each of its stages keeps one micro-batch."""
    if pp == 1:
        return np.ones_like(m), np.ones_like(m), np.ones_like(m), m > 1
    if of.schedule == "1f1b" and of.vpp == 1:
        held = np.minimum(m[:, None], np.arange(pp, 0.0, -1))
        whole = (1 / held).sum(axis=1)
        return 1 / whole, 1 / held.max(axis=1) / whole, held.min(axis=1), m > pp
    if of.schedule in ("gpipe", "looped-bfs"):
        return m / pp, np.full_like(m, 1 / pp), m, np.zeros_like(m, np.bool_)
    return np.zeros_like(m), np.zeros_like(m), np.ones_like(m), np.zeros_like(m, np.bool_)


def _kind(features: Sequence[Feature], batches: Sequence[Sequence[tuple[int, int]]], pp: int, free: bool) -> _Kind:
    """`free`: stages may lie anywhere, so that nothing is known about what a pipeline keeps and waits for."""
    pieces = []
    for number, (of, some) in enumerate(zip(features, batches, strict=True)):
        if not some:
            continue
        micro, counts = np.array(some, np.int64).T
        m = counts.astype(np.float64)
        chain = of.vpp == 1 and not free and of.schedule not in SPLIT_BACKWARD
        share = 1 / (1 - (1 - 1 / m) ** pp) if chain else m / pp
        zeros = np.zeros((len(m), 4), np.bool_)
        zeros[:, list(of.zeros)] = True
        weights = _weights(of, pp, m)
        if free:
            weights = (np.zeros_like(m), np.zeros_like(m), np.zeros_like(m), np.zeros_like(m, np.bool_))
        same = np.full_like(counts, number), np.arange(len(some))
        recompute = np.full_like(counts, RECOMPUTE.index(of.recompute))
        pieces.append((*same, micro, m, recompute, share, zeros, *weights))
    return _Kind(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def columns_of(space: Space, floors: Floors, limit: float) -> tuple[Columns, list[TooLarge]]:
    """The rows of a space whose bytes may stay within the limit, with a bound of their steps; and what cannot fit."""
    wanted = floors.setup.proposal.wanted
    free = wanted.placement is not None
    some = wanted.recompute_layers is not None
    kinds: dict[tuple[int, int, int], _Kind] = {}
    shares: dict[tuple[object, ...], int] = {}
    parts: list[tuple[Ints, ...]] = []
    figures: list[tuple[Floats, Floats]] = []
    too_large: list[TooLarge] = []
    for number, family in enumerate(space.families):
        key = id(family.features), id(family.batches), family.structure.pp
        if key not in kinds:
            kinds[key] = _kind(family.features, family.batches, family.structure.pp, free)
        kind = kinds[key]
        sums = [floors.tables.endless(family.structure, mode) for mode in RECOMPUTE]
        keeps = _room(kind, floors, family, sums, limit, too_large)
        rows = np.flatnonzero(keeps)
        if not len(rows):
            continue
        micro, mode = kind.micro_batch[rows], kind.recompute[rows]
        work = np.array([(of.work_s - (of.repeated_s if some else 0.0)) / ENDLESS for of in sums])
        bound = kind.share_of_work[rows] * micro * work[mode] * _SLACK + STEP_HOST_S.value
        s = family.structure
        share = shares.setdefault((s.tp, s.sp, s.cp, s.ep, s.etp), len(shares))
        share_id = (share * len(RECOMPUTE) + mode) * (1 << 40) + micro
        parts.append((np.full(len(rows), number), kind.feature[rows], kind.batch[rows], micro, share_id))
        figures.append((kind.share_of_work[rows], bound))
    if not parts:
        none, zero = np.zeros(0, np.int64), np.zeros(0)
        return Columns(space.families, none, none, none, none, none, zero, zero), too_large
    family_of, feature, batch, micro_batch, share_of = (np.concatenate(column) for column in zip(*parts, strict=True))
    share_of_work, bound = (np.concatenate(column) for column in zip(*figures, strict=True))
    found = Columns(space.families, family_of, feature, batch, micro_batch, share_of, share_of_work, bound)
    return found, too_large


def _room(
    kind: _Kind, floors: Floors, family: Family, sums: Sequence[ShareSums], limit: float, too_large: list[TooLarge]
) -> Flags:
    """Which rows may fit under one of their ZeRO stages at least; the layouts that cannot are noted."""
    activation = np.array([of.activation / ENDLESS for of in sums])[kind.recompute] * kind.micro_batch
    if not floors.habits.as_scheduled:
        activation = np.zeros_like(activation)
    whole, pp = floors.habits.recipe.whole_gradients, family.structure.pp
    keeps = np.zeros(len(activation), np.bool_)
    lost = np.zeros(len(activation), np.int64)
    least = np.full(len(activation), np.inf)
    for zero in range(4):
        asked = kind.zeros[:, zero]
        if not asked.any():
            continue
        of = floors.states(family, zero)
        states = of.lasting + np.where(kind.gradients | whole, of.gradients, 0.0)
        need = np.maximum(activation * kind.alike + states * kind.smallest, (activation * kind.plain + states) / pp)
        need = np.maximum(need, (of.lasting + of.gradients + of.step) / pp) * floors.over + of.context
        fits = need * (1 - 1e-9) <= limit
        keeps |= asked & fits
        lost += asked & ~fits
        least = np.where(asked & ~fits, np.minimum(least, need), least)
    if lost.any():
        for mode, name in enumerate(RECOMPUTE):
            here = kind.recompute == mode
            if count := int(lost[here].sum()):
                too_large.append(TooLarge(family, name, count, float(least[here].min())))
    return keeps
