"""Every group of a space at once, as columns of numbers: which can fit at all, and how fast they can be at best.

A group is a row here until the search asks for it. What its micro-batch costs is bounded by an endless one: a kernel
or a collective on fewer tokens is never better used than on a great many, so time and bytes a token only grow.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
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

_ROUNDING = 1 + 1e-9
_TIER = 1.3  # rows whose bounds are this much apart are not looked at together
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


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows of one family that may fit: rows of its kind, and a lower bound of the step of each, in seconds."""

    family: Family
    kind: _Kind
    rows: Ints
    zeros: Flags  # [row, ZeRO stage] that may fit
    bound: Floats
    share: Ints  # rows of equal numbers have the same share of a unit's work
    first: int  # the number of its first row among all


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that share a unit's work. A step lasts at least `share_of_work` times what all units take for one
    micro-batch on one rank; `least` is the least bound of them."""

    least: float
    numbers: Ints  # of each row among all
    share_of_work: Floats


@dataclass(frozen=True)
class Columns:
    """The groups that may fit, a row each, numbered in the order of their families."""

    pieces: Sequence[_Piece]
    firsts: Sequence[int]

    def groups(self, number: int) -> tuple[tuple[Group, ...], Sequence[bool]]:
        """The group of a row (and the same with shards inside a node, where there is one), and whether each ZeRO stage
        may fit."""
        piece = self.pieces[bisect_right(self.firsts, number) - 1]
        at = number - piece.first
        row = piece.rows[at]
        return piece.family.groups(int(piece.kind.feature[row]), int(piece.kind.batch[row])), piece.zeros[at].tolist()

    def degrees(self, number: int) -> tuple[int, ...]:
        """The degrees of a row."""
        return self.pieces[bisect_right(self.firsts, number) - 1].family.structure.degrees

    def by_share(self) -> Iterator[Rows]:
        """All rows by share, in the order of their bounds. The far ones are not looked at before they are asked for: a
        share comes again where some of its rows are far."""
        beyond, least = -1.0, min((float(piece.bound.min()) for piece in self.pieces), default=float("inf"))
        while least < float("inf"):
            most = least * _TIER
            near = [piece for piece in self.pieces if piece.bound.min() <= most and piece.bound.max() > beyond]
            yield from _shares(near, beyond, most)
            over = [piece.bound[piece.bound > most] for piece in self.pieces]
            beyond, least = most, min((float(bounds.min()) for bounds in over if len(bounds)), default=float("inf"))


def _shares(pieces: Sequence[_Piece], beyond: float, most: float) -> Iterator[Rows]:
    """The rows with bounds in (beyond, most]."""
    chosen = [np.flatnonzero((piece.bound > beyond) & (piece.bound <= most)) for piece in pieces]
    pairs = list(zip(pieces, chosen, strict=True))
    bound = np.concatenate([piece.bound[rows] for piece, rows in pairs])
    share = np.concatenate([piece.share[rows] for piece, rows in pairs])
    numbers = np.concatenate([piece.first + rows for piece, rows in pairs])
    work = np.concatenate([piece.kind.share_of_work[piece.rows[rows]] for piece, rows in pairs])
    order = np.lexsort((bound, share))
    starts = np.flatnonzero(np.append(True, share[order[1:]] != share[order[:-1]]))
    least = bound[order[starts]]
    ends = np.append(starts[1:], len(order))
    for one in np.argsort(least, kind="stable").tolist():
        rows = order[starts[one] : ends[one]]
        yield Rows(float(least[one]), numbers[rows], work[rows])


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
    pieces: list[_Piece] = []
    too_large: list[TooLarge] = []
    count = 0
    for family in space.families:
        key = id(family.features), id(family.batches), family.structure.pp
        if key not in kinds:
            kinds[key] = _kind(family.features, family.batches, family.structure.pp, free)
        kind = kinds[key]
        zeros, sums = _room(kind, floors, family, limit, too_large)
        rows = np.flatnonzero(zeros.any(axis=1))
        if not len(rows):
            continue
        micro, mode = kind.micro_batch[rows], kind.recompute[rows]
        work = np.array([(of.work_s - (of.repeated_s if some else 0.0)) / ENDLESS for of in sums])
        bound = kind.share_of_work[rows] * micro * work[mode] * _SLACK + STEP_HOST_S.value
        s = family.structure
        share = shares.setdefault((s.tp, s.sp, s.cp, s.ep, s.etp), len(shares))
        share_of = (share * len(RECOMPUTE) + mode) * (1 << 40) + micro
        pieces.append(_Piece(family, kind, rows, zeros[rows], bound, share_of, count))
        count += len(rows)
    return Columns(pieces, [piece.first for piece in pieces]), too_large


def _room(
    kind: _Kind, floors: Floors, family: Family, limit: float, too_large: list[TooLarge]
) -> tuple[Flags, Sequence[ShareSums]]:
    """Which rows may fit under which of their ZeRO stages, and the sums of an endless micro-batch by recompute;
    the layouts that cannot fit are noted."""
    pp, zeros = family.structure.pp, kind.zeros
    states = floors.states(family.structure, True)
    steady = np.array([(of.lasting + of.gradients + of.step) / pp for of in states]) * floors.over + states[0].context
    lost = np.zeros(zeros.shape, np.bool_) | (steady > limit * _ROUNDING)
    least = np.broadcast_to(steady, zeros.shape)
    sums: list[ShareSums] = []
    if not (lost | ~zeros).all():
        sums = [floors.tables.endless(family.structure, mode) for mode in RECOMPUTE]
        kept = np.array([of.activation / ENDLESS for of in sums])[kind.recompute] * kind.micro_batch
        if not floors.habits.as_scheduled:
            kept = np.zeros_like(kept)
        early = (kind.gradients | floors.habits.recipe.whole_gradients)[:, None]
        held = np.array([of.lasting for of in states]) + early * np.array([of.gradients for of in states])
        alike, mean = (kept * kind.alike)[:, None], (kept * kind.plain)[:, None]
        need = np.maximum(alike + held * kind.smallest[:, None], (mean + held) / pp) * floors.over + states[0].context
        least = np.maximum(need, steady)
        lost = least > limit * _ROUNDING
    beyond = lost & zeros
    if beyond.any():
        counts = np.bincount(kind.recompute, beyond.sum(axis=1), len(RECOMPUTE)).astype(int).tolist()
        closest = np.where(beyond, least, np.inf).min(axis=1)
        for mode, (name, count) in enumerate(zip(RECOMPUTE, counts, strict=True)):
            if count:
                closest_here = float(closest[kind.recompute == mode].min())
                too_large.append(TooLarge(family, name, count, closest_here))
    return zeros & ~lost, sums
