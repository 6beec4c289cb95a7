"""The bytes of hundreds of thousands of layouts at once, all pipeline ranks of each: the formulas of `memory_rows.py`.

Layouts come as columns that point into lists of what repeats (shares of a unit's work, degrees, pipelines), and are
evaluated together with all others on the same placement. Stages are cut evenly, see `even_stages`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.files.setup import Setup
from meshwright.layout.degrees import Layout, Schedule
from meshwright.layout.partition import even_stages
from meshwright.model.units import units_of
from meshwright.model.variants import alike
from meshwright.predictor import groups
from meshwright.predictor.compute import Share
from meshwright.predictor.live import Live, enough
from meshwright.predictor.memory import (
    Habits,
    bucket_bytes,
    context_bytes,
    habits_of,
    lives_of,
    manners_of,
    shared_choices,
)  # fmt: skip
from meshwright.predictor.memory_pipeline import Choices, Pipeline, StageSums, rows_of
from meshwright.predictor.memory_rows import row_parts
from meshwright.predictor.table import KINDS, Figure, Largest, layers_of, memory_figures

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_DENSE, _EXPERT, _KEPT, _WORKING, _ADAPTER, _GRADIENT = range(6)  # the order of `memory_figures`
_FIGURES = [Figure.DENSE, Figure.EXPERT, Figure.ACTIVATION, Figure.WORKING, Figure.ADAPTER, Figure.GRADIENT]
_PLAIN = Layout(((),), (0,))


@dataclass(frozen=True)
class Columns:
    """Many layouts: element i is layout i, `share`, `degrees` and `pipeline` point into the lists."""

    shares: Sequence[Share]
    all_degrees: Sequence[groups.Degrees]
    pipelines: Sequence[tuple[Schedule, tuple[int, ...], int]]  # schedule, placement, micro-batches
    share: Ints
    degrees: Ints
    pipeline: Ints
    zero: Ints


@dataclass(frozen=True)
class _Tables:
    """[share] figures: sums over the first n units, [share, unit + 1, figure]; of layers, [share, unit, `Largest`]."""

    prefix: Floats
    layers: Floats
    dense: Floats  # [share, unit]
    tied: Floats  # [share]
    kinds: Ints


def _tables(setup: Setup, shares: Sequence[Share], habits: Habits) -> _Tables:
    arch = setup.proposal.arch
    units, first = units_of(arch), np.array(alike(arch))
    distinct, which = np.unique(first, return_inverse=True)
    each = np.array(
        [[memory_figures(setup, units[unit], share, habits.stack) for unit in distinct] for share in shares]
    )
    figures = each[:, which]
    kinds = np.array([KINDS.index(unit.kind) for unit in units])
    wide = np.zeros((*figures.shape[:2], len(Figure)))
    wide[:, :, _FIGURES] = figures
    layers = layers_of(wide, kinds)
    prefix = np.zeros((len(shares), len(units) + 1, len(_FIGURES)))
    figures.cumsum(axis=1, out=prefix[:, 1:])
    tied = figures[:, 0, _DENSE] if arch.tied else np.zeros(len(shares))
    return _Tables(prefix, layers, figures[:, :, _DENSE], tied, kinds)


def fullest(setup: Setup, of: Columns) -> Floats:
    """Bytes that the fullest pipeline rank of each layout needs (the median: allocated, reserve and context)."""
    habits = habits_of(setup)
    tables, manners = _tables(setup, of.shares, habits), manners_of(setup, habits)
    shared = [shared_choices(setup, share, habits, _PLAIN) for share in of.shares]
    by_share = np.array([(s.boundary, s.gathers, s.waiting, s.at_loss, s.head) for s in shared])
    full = np.array([share.recompute == "full" for share in of.shares])
    cluster = setup.proposal.cluster
    by_degrees = np.array(
        [
            (groups.shard_group(cluster, d).size, groups.expert_gradient_group(cluster, d).size, d.dp * d.cp,
             context_bytes(setup, habits.stack, d))
            for d in of.all_degrees
        ]
    )  # fmt: skip
    result = np.zeros(len(of.share))
    known: dict[int, _Even] = {}
    for family, rows in _families(of):
        placement = family[0].placement
        if len(placement) not in known:
            known[len(placement)] = _even(setup, tables, len(placement))
        even = known[len(placement)]
        pipeline = Pipeline(placement, 0, len(placement) - 1, even.mid_layer)
        lives, counts = _lives(pipeline, family, of.pipeline[rows], habits)
        share, (boundary, gathers, waiting, at_loss, head) = of.share[rows], by_share[of.share[rows]].T[:, :, None]
        shards, experts, replicas, context = by_degrees[of.degrees[rows]].T[:, :, None]
        choices = Choices(
            of.zero[rows][:, None], shards, experts, replicas, False, False, False, counts[:, None], boundary,
            full[share][:, None], gathers, waiting, at_loss, 0.0, head, bucket_bytes(habits.stack, _PLAIN.bucket_mib),
            context,
        )  # fmt: skip
        found, _, _ = rows_of(pipeline, lives, _sums(even, tables.tied, share, placement), choices, manners)
        allocated = np.broadcast_to(row_parts(found, habits.recipe).allocated(), (len(rows), pipeline.ranks))
        result[rows] = allocated.max(axis=1) * habits.over + context[:, 0]
    return result


@dataclass(frozen=True, slots=True)
class _Member:
    """One entry of `Columns.pipelines`."""

    index: int
    schedule: Schedule
    placement: tuple[int, ...]
    micro_batches: int


def _families(of: Columns) -> Iterator[tuple[list[_Member], Ints]]:
    """Pipelines that are evaluated together, with their layouts: those of the same placement with one stage a rank,
    others with the same moments."""
    found: dict[object, list[_Member]] = {}
    for index, (schedule, placement, micro_batches) in enumerate(of.pipelines):
        plain = placement == tuple(range(max(placement) + 1))
        key = placement if plain else (schedule, placement, enough(schedule, placement, micro_batches))
        found.setdefault(key, []).append(_Member(index, schedule, placement, micro_batches))
    family_of = np.empty(len(of.pipelines), np.int64)
    for number, members in enumerate(found.values()):
        family_of[[member.index for member in members]] = number
    numbers = family_of[of.pipeline]
    order = np.argsort(numbers, kind="stable")
    ends = np.bincount(numbers, minlength=len(found)).cumsum()
    yield from zip(found.values(), np.split(order, ends[:-1]), strict=True)


@dataclass(frozen=True)
class _Even:
    """Even stages of a number: which begin inside a layer, and the sums of every share, [share, stage, figure]."""

    mid_layer: NDArray[np.bool_]
    figures: Floats
    largest: Floats
    ends: Floats


def _even(setup: Setup, tables: _Tables, stages: int) -> _Even:
    names = even_stages(setup.proposal.arch, stages)
    mid_layer = np.array([stage[0].endswith(".ffn") for stage in names])
    ends = np.cumsum([len(stage) for stage in names])
    starts = np.concatenate([[0], ends[:-1]])
    layers, cut = tables.layers, starts[mid_layer]
    if len(cut):
        layers = layers.copy()
        layers[:, cut - 1] -= layers[:, cut]
    at_ends = np.zeros((len(layers), stages))
    at_ends[:, 0] += tables.dense[:, 0]
    at_ends[:, -1] += tables.dense[:, -1]
    figures = tables.prefix[:, ends] - tables.prefix[:, starts]
    return _Even(mid_layer, figures, np.maximum.reduceat(layers, starts, axis=1), at_ends)


def _lives(pipeline: Pipeline, family: Sequence[_Member], which: Ints, habits: Habits) -> tuple[Live | Floats, Ints]:
    """What is alive, as `rows_of` takes it, and the micro-batches of each layout."""
    position = np.zeros(max(member.index for member in family) + 1, np.int64)
    position[[member.index for member in family]] = np.arange(len(family))
    counts = np.array([member.micro_batches for member in family])[position[which]]
    first = lives_of(pipeline, family[0].schedule, family[0].micro_batches, habits)
    if isinstance(first, Live):
        return first, counts
    diagonals = [np.asarray(lives_of(pipeline, member.schedule, member.micro_batches, habits)) for member in family]
    return np.concatenate(diagonals)[position[which]], counts


def _sums(even: _Even, tied: Floats, share: Ints, placement: tuple[int, ...]) -> StageSums:
    """The sums by stage of the shares that these layouts have."""
    used, of = np.unique(share, return_inverse=True)
    figures, largest, at_ends = even.figures[used], even.largest[used], even.ends[used]
    if placement[0] == placement[-1]:
        at_ends[:, -1] -= tied[used]
        figures[:, -1, _DENSE] -= tied[used]
    return StageSums(
        figures[..., _DENSE], figures[..., _EXPERT], at_ends, figures[..., _ADAPTER], figures[..., _KEPT],
        largest[..., Largest.AGAIN], largest[..., Largest.WHOLE], largest[..., Largest.LAYER],
        largest[..., Largest.SHAPES], largest[..., Largest.GRADIENT], of,
    )  # fmt: skip
